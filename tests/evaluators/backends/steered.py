"""A trainer that tests steer: `python steered.py OUT ITERATIONS GAS`. It trains nothing.

What it does follows from the beginning of the trial's name. Each rank notes next to this file that
it has begun, and one that is held waits there for another file.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

out, iterations, accumulation = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
attempt = out.parent.name if out.parent.name.startswith("attempt-") else "attempt-1"
trial = out.parts[-3] if out.parent.name == attempt else out.parts[-2]
kind, first = trial.split("-")[0], attempt == "attempt-1"
rank, here = int(os.environ["RANK"]), Path(__file__).parent


def wait_for(file: str) -> None:
    while not (here / file).exists():
        time.sleep(0.02)


def wait_for_end(pid: int) -> None:
    """Wait until whoever started the process has taken notice, and had time to report it."""
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.02)
    time.sleep(1)


def node() -> str:
    import psutil

    parents = psutil.Process().parents()
    raylets = [str(parent.pid) for parent in parents if "raylet" in parent.name()]
    return "".join(raylets) or os.environ.get("SLURMD_NODENAME", "")


print(f"rank {rank} of {os.environ['WORLD_SIZE']}", flush=True)
print(f"peak {300 + 10 * rank} MB", flush=True)
if kind in {"hang", "held"}:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)", str(out)])
with (here / f"{trial}.begun").open("a") as begun:
    begun.write(f"{attempt} {rank} {node()}\n")
if kind == "held":
    wait_for(f"{trial}.go")
    child.kill()
if kind == "hang" or (kind == "again" and first):
    wait_for("never")
if kind == "faulty" and first:
    raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
if kind in {"oom", "killed", "crash"} and rank:
    (here / f"{trial}.pid").write_text(str(os.getpid()))
    (here / f"{trial}.pid").rename(here / f"{trial}.failing")
if kind == "oom" and rank:
    raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
if kind == "killed" and rank:
    os.kill(os.getpid(), signal.SIGKILL)
if kind == "crash" and rank:
    print("the data is not what it should be", flush=True)
    sys.exit(3)
if kind in {"oom", "killed", "crash"}:  # rank 1 fails, and only then the other one notices
    wait_for(f"{trial}.failing")
    wait_for_end(int((here / f"{trial}.failing").read_text()))
    raise ConnectionError("Connection reset by peer")
for iteration in range(1, iterations + 1) if rank == 0 else ():
    began = time.perf_counter()
    time.sleep(0.01)
    ms = 1000 * (time.perf_counter() - began)
    print(f"[{iteration}/{iterations}] loss={10 / iteration:.4f} {ms:.3f}ms", flush=True)
