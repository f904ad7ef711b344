"""Megabytes of training log read in a second: the stream parser against a plain one.

    python tests/benchmarks/log_parser.py [--mib N] [--repeat N] [--json OUT]

The plain one is what one writes in an afternoon: it goes through the file line by line, with a
regular expression for the iteration line and one for errors. Both read the same file in the same
run and must find the same times. Seconds are of the processor, so that other work on the machine
counts little; the file is in the page cache.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import chain, cycle
from pathlib import Path
from statistics import median

from evaluators.training_log import read_log

MIB = 1 << 20
ITERATIONS = 50
# What a real log is full of; each line has its share.
QUIET = (
    "[2024-05-01 12:00:00,123] [INFO] [logging.py:96:log_dist] [Rank 0] step={n}, skipped=0, "
    "lr=[0.00015, 0.00015], mom=[(0.9, 0.95), (0.9, 0.95)]",
    "[2024-05-01 12:00:00,124] [INFO] [timer.py:260:stop] epoch=0/micro_step={n}/global_step={n}, "
    "RunningAvgSamplesPerSec=21.36, CurrSamplesPerSec=21.29, MemAllocated=6.01GB",
    "[Rank 0] time (ms) | fwd_microstep: 25341.72 | bwd_microstep: 77707.38 | step: 2218.38",
    "time (ms) | forward-backward: 101.22 | optimizer: 3.10 | batch-generator: 0.93",
    " > number of parameters on (tensor, pipeline) model parallel rank ({n}, 0): 1312722432",
    "building GPT model, layer {n} of 96 is on its device",
    "n0123:81234:81999 [3] NCCL INFO Channel 12/0 : 3[3] -> 4[4] [send] via NET/AWS Libfabric/1",
    "RANK={n} MASTER_ADDR=n0001 MASTER_PORT=29500 LD_LIBRARY_PATH=/opt/rocm/lib:/opt/cray/lib64",
)
# Lines that hold a word that the parser looks for, and mean nothing; the parser must take a
# closer look at the last four of these.
NEAR = (
    "saving checkpoint at iteration {n} to /scratch/checkpoints, no errors so far",
    "0 errors, 0 exceptions, memory (MB) fragmentation 0.0{n}, overflow not seen",
    "iterations per epoch {n}, elapsed time of the last iteration is in the next line",
    "UserWarning: Error handling of torch.distributed changes; no Exception is raised until {n}",
    "[WARNING] async_io: error: libaio is missing, offload of iteration {n} is off",
    "warm-up, elapsed time per iteration (ms): {n}.0",
    "NCCL WARN retried {n} times, last error: none",
    "profiler: 0 of {n} calls ran out of memory",
)
LINE = (
    " iteration {n:8d}/      50 | consumed samples: {n:12d} | elapsed time per iteration (ms):"
    " {ms:.1f} | learning rate: 1.500E-04 | global batch size:   128 | lm loss: 1.050000E+01 |"
    " loss scale: 4096.0 | grad norm: 3.125 | number of skipped iterations:   0 |"
    " number of nan iterations:   0 | samples per second: 6.514 | TFLOPs: 149.46 |\n"
)
ITERATION = re.compile(r"iteration\s+(\d+)/\s*\d+ .*elapsed time per iteration \(ms\): ([\d.]+)")
ERROR = re.compile(r"\w+Error:|out of memory|^srun: error|command not found|Killed")


def write_log(path: Path, *, mib: int, noise: Sequence[str]) -> None:
    """`mib` of noise with the iteration lines strewn evenly among it."""
    share = mib * MIB // ITERATIONS
    numbers = cycle(range(100))
    with path.open("w") as file:
        for n in range(1, ITERATIONS + 1):
            written = 0
            for line, number in zip(cycle(noise), numbers, strict=False):
                written += file.write(line.format(n=number) + "\n")
                if written >= share:
                    break
            file.write(LINE.format(n=n, ms=100 + n / 10))


def plain(path: Path) -> list[float]:
    """Seconds of each iteration, line by line."""
    times, errors = [], []
    with path.open(errors="replace") as file:
        for line in file:
            if found := ITERATION.search(line):
                times.append(float(found[2]) / 1000)
            elif ERROR.search(line):
                errors.append(line)
    return times


def stream(path: Path) -> list[float]:
    return [i.elapsed_s for i in read_log(path).last.iterations]


def seconds(read: Callable[[Path], list[float]], path: Path, *, repeat: int) -> float:
    """Median processor seconds of reading the file."""
    times = []
    for _ in range(repeat):
        start = time.process_time()
        read(path)
        times.append(time.process_time() - start)
    return median(times)


def compared(path: Path, *, repeat: int) -> dict[str, float]:
    sentence = stream(path)
    if len(sentence) != ITERATIONS or any(
        abs(a - b) > 1e-9 for a, b in zip(sentence, plain(path), strict=True)
    ):
        raise SystemExit("the two parsers differ")
    size = path.stat().st_size / 1e6
    ours, theirs = (seconds(read, path, repeat=repeat) for read in (stream, plain))
    return {
        "stream_mb_per_s": size / ours,
        "plain_mb_per_s": size / theirs,
        "ratio": theirs / ours,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=64, help="size of each log")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    chosen = parser.parse_args()
    every_20th = tuple(chain.from_iterable((*(QUIET * 3)[:19], near) for near in NEAR))
    logs = {
        "a real log's noise": QUIET,
        "5 % of lines nearly matter": every_20th,
        "all lines nearly matter": NEAR,
    }
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trial.log"
        for name, noise in logs.items():
            write_log(path, mib=chosen.mib, noise=noise)
            figures[name] = found = compared(path, repeat=chosen.repeat)
            print(
                f"{name}: {found['stream_mb_per_s']:.0f} MB/s; line by line"
                f" {found['plain_mb_per_s']:.0f} MB/s; ratio {found['ratio']:.1f}"
            )
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
