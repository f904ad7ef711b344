"""A trainer with words and a log of its own, for tests: `python train.py --config FILE …`.

It trains nothing. All ranks meet at rank 0, work for as long as their part of the model and of the
batch asks for, and rank 0 tells the times that it measured itself.
"""

import argparse
import json
import os
import socket
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
parser.add_argument("--per-device-batch", type=int, default=1)
parser.add_argument("--updates", type=int, default=10)
parser.add_argument("--slices", type=int, default=1)
parser.add_argument("--stages", type=int, default=1)
parser.add_argument("--recompute", choices=["yes", "no"], default="no")
parser.add_argument("--norms-too", action="store_true")
parser.add_argument("--schedule", default="", help="6:4, after six updates four micro-batches")
parser.add_argument("--ramp", help="is accepted, and ignored")
parser.add_argument("--figures", default="", help="a file that has updates as JSON lines, no log")
parser.add_argument("--fail", default="")
args = parser.parse_args()
with open(args.config) as file:
    config = json.load(file)
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def meet() -> None:
    """Return once all ranks are here; each has an address and a port at which rank 0 waits."""
    place = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank:
        until = time.monotonic() + 500
        while True:
            try:
                socket.create_connection(place, 5).recv(1)
                return
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)
    with socket.create_server(place) as server:
        others = [server.accept()[0] for _ in range(world - 1)]
        for other in others:
            other.sendall(b"!")
            other.close()


def work(units: float) -> int:
    """Compute, for about 20 microseconds a unit."""
    total = 0
    for _ in range(int(units * 500)):
        total += total % 7 + 1
    return total


meet()
if args.fail == "memory" and rank == world - 1:
    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
if args.fail == "killed" and rank == world - 1:
    os.kill(os.getpid(), 9)
if args.fail == "silent" and rank == world - 1:
    print("the data is not what it should be")
    sys.exit(3)
if args.fail and rank != world - 1:
    time.sleep(0.2)
    raise ConnectionError("Connection reset by peer")
if rank == 0:
    print(f"{world} ranks: {args.slices} x {args.stages}, zero {config['zero']}, "
          f"{os.environ['MIX']}, accumulating {config['accumulate']}", flush=True)  # fmt: skip
replicas = world // (args.slices * args.stages)
schedule = [[int(n) for n in step.split(":")] for step in args.schedule.split(",") if step]
costs = (
    args.per_device_batch / (args.slices * args.stages) * (1.33 if args.recompute == "yes" else 1)
)
for update in range(1, args.updates + 1):
    began = time.perf_counter()
    reached = [accumulate for done, accumulate in schedule if done < update]
    accumulate = reached[-1] if reached else config["accumulate"]
    slots = accumulate + args.stages - 1
    work(4 * costs * slots + (200 if update == 1 else 2))
    if rank == 0:
        ms = (time.perf_counter() - began) * 1000
        if args.figures:
            with open(args.figures, "a") as file:
                file.write(json.dumps({"update": update, "ms": ms}) + "\n")
            continue
        print(f"[{update}/{args.updates}] loss={10 / update:.4f} {ms:.3f}ms "
              f"x{accumulate}", flush=True)  # fmt: skip
print(f"peak {300 + 10 * rank + args.per_device_batch} MB", flush=True)
