"""A stand-in for a checkout of Megatron-DeepSpeed, which no test machine has.

It reads those arguments of the real entry script that decide how it runs, refuses what the real
one refuses, goes through the batch's ramp-up as the real one does, and prints lines of the real
form. Nothing is trained: a micro-batch is a short sleep. `--misbehave` makes it fail in one of the
real ways.
"""

from __future__ import annotations

import re
from pathlib import Path

from evaluators.adapter.catalog import adapter_file

PRETRAIN_GPT = r'''
import argparse, json, os, signal, sys, time

MICRO_BATCH_S = 0.01

parser = argparse.ArgumentParser(allow_abbrev=False)
for name in """tensor-model-parallel-size pipeline-model-parallel-size micro-batch-size
        global-batch-size seq-length train-iters train-samples""".split():
    parser.add_argument(f"--{name}", type=int)
for name in "deepspeed_config data-path misbehave".split():
    parser.add_argument(f"--{name}")
parser.add_argument("--rampup-batch-size", nargs=3, type=int)
args, _ = parser.parse_known_args()

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
assert os.environ["MASTER_ADDR"] and int(os.environ["MASTER_PORT"]) and "LOCAL_RANK" in os.environ
model_parallel = args.tensor_model_parallel_size * args.pipeline_model_parallel_size
replicas = world // model_parallel
# Megatron's order of ranks: tensor, then data, then pipeline.
replica = rank // args.tensor_model_parallel_size % replicas
assert not (args.train_iters and args.train_samples)
assert not (args.rampup_batch_size and args.train_iters), "--train-samples goes with a ramp-up"
for ending in (".bin", ".idx"):
    assert os.path.getsize(args.data_path + ending) > 0
config = json.load(open(args.deepspeed_config))
small = args.rampup_batch_size[0] if args.rampup_batch_size else args.global_batch_size
assert config["train_batch_size"] == small
accumulation = config["train_batch_size"] // replicas // args.micro_batch_size
assert config["gradient_accumulation_steps"] == accumulation


def batch(consumed):
    if not args.rampup_batch_size or args.misbehave == "no-ramp-up":
        return args.global_batch_size
    start, step, samples = args.rampup_batch_size
    steps = (args.global_batch_size - start) // step
    if consumed > samples:
        return args.global_batch_size
    return min(start + int(consumed / (samples / steps)) * step, args.global_batch_size)


def iterations():
    """As Megatron counts those of --train-samples beforehand."""
    if args.train_iters:
        return args.train_iters
    ramp = args.rampup_batch_size
    count = consumed = 0
    while ramp and consumed <= ramp[2] and consumed < args.train_samples:
        consumed, count = consumed + batch(consumed), count + 1
    return count + (args.train_samples - consumed) // args.global_batch_size


def say(text):
    print(text, flush=True)


def meet():
    """Ranks that train together are never more than an iteration apart."""
    open(f"met-{rank}", "w").close()
    latest = time.time() + 20
    while not all(os.path.exists(f"met-{r}") for r in range(world)) and time.time() < latest:
        time.sleep(0.01)


def misbehave(iteration):
    if args.misbehave in ("oom", "crash", "kill"):
        meet()
    if args.misbehave == "oom" and rank == 1:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.50 GiB (GPU 1; 15.78 GiB total"
                           " capacity; 12.10 GiB already allocated; 1.20 GiB free)")
    if args.misbehave == "crash" and rank == 1:
        raise ValueError("the loss curve has left the plane")
    if args.misbehave == "kill" and rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if args.misbehave == "hang":
        time.sleep(1000)
    if args.misbehave in ("oom", "crash", "kill"):
        time.sleep(1)
        raise RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]")


say(f"rank {rank} of {world} is set up")
while os.path.exists(os.path.join(os.path.dirname(os.path.abspath(__file__)), "hold")):
    time.sleep(0.05)
if rank == world - 1:  # which no other rank's iterations precede
    say("[2026-01-01 10:00:00,123] [INFO] [engine.py:98:__init__] CONFIG: "
        f"micro_batches={config['gradient_accumulation_steps']} "
        f"micro_batch_size={config['train_micro_batch_size_per_gpu']}")
consumed, count = 0, iterations()
for iteration in range(1, count + 1):
    size, began = batch(consumed), time.perf_counter()
    micro_batches = size // replicas // args.micro_batch_size
    time.sleep(MICRO_BATCH_S * (micro_batches + args.pipeline_model_parallel_size - 1))
    if iteration == 3:
        misbehave(iteration)
    milliseconds = 1000 * (time.perf_counter() - began)
    consumed += size
    if rank == world - 1:
        say(f" iteration {iteration:8d}/{count:8d} | consumed samples: {consumed:12d} |"
            f" consumed tokens: {consumed * args.seq_length:12d} | elapsed time per iteration"
            f" (ms): {milliseconds:.1f} | learning rate: 1.000E-04 | global batch size: {size:5d} |"
            f" lm loss: {10 / iteration:.6E} | loss scale: 1.0 | grad norm: 1.000 | actual seqlen: "
            f"{args.seq_length:5d} | number of skipped iterations:   0 | number of nan iterations: "
            f"  0 | samples per second: {1000 * size / milliseconds:.3f} | "
            "TFLOPs: 1.00 |")
    if args.misbehave == "late" and iteration == 1 and rank == 0:
        time.sleep(1)
    if iteration == 1 and replica == 0:
        say(f"[Rank {rank}] (after 1 iterations) memory (MB) | allocated: 1024.0 | max allocated: "
            f"{2048.0 + rank} | reserved: 3072.0 | max reserved: {4096.0 + rank}")
'''


def make_checkout(folder: Path) -> Path:
    """The folder, with an entry script in it, and an adapter that asks for no packages."""
    folder.mkdir(parents=True)
    ready = adapter_file("megatron-deepspeed").read_text()
    quick = re.sub(r"^(needs|folder) = .*\n", "", ready, flags=re.MULTILINE)
    (folder / "quick.toml").write_text(quick)
    (folder / "pretrain_gpt.py").write_text(PRETRAIN_GPT)
    return folder
