"""A trainer that trains nothing, for the check of adapters: it sleeps as long as its batch asks
for, and tells of each iteration in every way that a test may want to read.

Its words are odd, and it takes what it does not know from its configuration without a word.
"""

import argparse
import json
import os
import time

parser = argparse.ArgumentParser()
parser.add_argument("--config", default="")
parser.add_argument("--out", required=True)
parser.add_argument("--samples", type=int, default=1)
parser.add_argument("--eval-samples", type=int, default=1)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--updates", type=int, default=10)
parser.add_argument("--then", default="", help="11:4, after 11 updates 4 micro-batches")
parser.add_argument("--ramp", help="is accepted, and ignored")
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--late", action="store_true", help="print all lines at the end")
parser.add_argument("--recompute", default="no", choices=("no", "full"))
parser.add_argument("--hang", action="store_true", help="say so, and do nothing for ever")
args = parser.parse_args()
config = {}
if args.config:
    with open(args.config) as file:
        config = json.load(file)
samples = int(os.environ.get("SAMPLES", config.get("samples", args.samples)))
accumulate = config.get("accumulate", args.accumulate)
if "batch" in config:
    accumulate = config["batch"] // samples
parameters = 4 * 12 * args.width**2 + 512 * args.width
print(f"training {parameters:,} parameters with {samples} samples x {accumulate}", flush=True)

table = open(os.path.join(args.out, "metrics.csv"), "w")  # noqa: SIM115
lines = open(os.path.join(args.out, "metrics.jsonl"), "w")  # noqa: SIM115
table.write("update,train loss,seconds\n")
if args.hang:
    print("waiting for the other ranks", flush=True)
    time.sleep(3600)
printed = []
first = time.perf_counter()
for update in range(1, args.updates + 1):
    began = time.perf_counter()
    if args.then and update > int(args.then.split(":")[0]):
        accumulate = int(args.then.split(":")[1])
    time.sleep(0.006 + 0.018 * accumulate * (0.25 + 0.75 * samples) + (update == 1) * 0.02)
    took, loss = time.perf_counter() - began, 6.2 - 0.1 * update
    tokens = samples * accumulate * 32 / took
    printed.append(f"[{update}/{args.updates}] loss={loss:.3f} {took * 1000:.3f}ms "
                f"{tokens:.2f} tokens/s {time.perf_counter() - first:.4f}s in all")  # fmt: skip
    if not args.late or update == args.updates:
        print(*printed, sep="\n", flush=True)
        printed.clear()
    table.write(f"{update},{loss},{took}\n")
    lines.write(json.dumps({"update": update, "train": {"loss": loss}, "took": took}) + "\n")
peak = 300 * 2**20 + samples * 40 * 2**20
print(f"peak {peak / 2**20:.0f} MB, {peak / 2**30:.4f} GiB, {peak} bytes", flush=True)
