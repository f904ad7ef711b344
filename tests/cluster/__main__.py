"""A Slurm cluster on this machine to try things on: `python -m tests.cluster up`.

Needs Debian's or Ubuntu's packages; `down` takes everything away again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import platformdirs

from tests.cluster.cluster import Cluster, lacking, packages

KNOWN = platformdirs.user_cache_path("autotune") / "slurm-up.json"
DOWN_LIMIT_S = 30.0
UP = "up\n"


@dataclass(frozen=True, kw_only=True)
class RunningCluster:
    """The cluster that a process in the background holds."""

    pid: int
    folder: str
    gpus: int

    @classmethod
    def known(cls) -> Self | None:
        """None where there is none, or where its holder has died: then it is gone as well."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            running = cls(**json.loads(KNOWN.read_text()))
            if __package__ in Path(f"/proc/{running.pid}/cmdline").read_text().split("\0"):
                return running
        return None

    def exports(self) -> str:
        lines = [f"export SLURM_CONF={self.folder}/slurm.conf"]
        if not self.gpus:
            lines.append("# without root its nodes have no GPUs")
        return "\n".join([*lines, "# then, for example: sinfo, srun -N2 hostname, autotune doctor"])


def up(arguments: argparse.Namespace) -> int:
    if absent := lacking(accounting=arguments.accounting):
        wanted = packages(accounting=arguments.accounting)
        print(f"this machine has no {', '.join(absent)}; on Debian and Ubuntu:", file=sys.stderr)
        print(f"  apt-get install --no-install-recommends {wanted}", file=sys.stderr)
        return 1
    running = RunningCluster.known()
    if running is None:
        shape = json.dumps({"nodes": arguments.nodes, "accounting": arguments.accounting})
        holder = subprocess.Popen(
            [sys.executable, "-m", __package__, "hold", shape],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # no pipe of ours is running open in the background
            text=True,
            start_new_session=True,
        )
        assert holder.stdout
        if (line := holder.stdout.readline()) != UP:
            print(line + holder.stdout.read(), file=sys.stderr)
            return 1
        running = RunningCluster.known()
    print(running.exports() if running else "it went down again at once")
    return 0


def hold(arguments: argparse.Namespace) -> int:
    """What `up` leaves in the background: it ends with SIGTERM, and the cluster with it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with Cluster(**json.loads(arguments.shape)) as cluster:
        running = RunningCluster(pid=os.getpid(), folder=str(cluster.folder), gpus=cluster.gpus)
        KNOWN.parent.mkdir(parents=True, exist_ok=True)
        KNOWN.write_text(json.dumps(asdict(running)))
        print(UP, end="", flush=True)
        while True:
            signal.pause()


def down(_: argparse.Namespace) -> int:
    running = RunningCluster.known()
    if running is not None:
        os.kill(running.pid, signal.SIGTERM)
        ends = time.monotonic() + DOWN_LIMIT_S
        while RunningCluster.known() and time.monotonic() < ends:
            time.sleep(0.02)
    KNOWN.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        KNOWN.parent.rmdir()
    print("down; in a shell that knew it: unset SLURM_CONF" if running else "there was no cluster")
    return 0


def status(_: argparse.Namespace) -> int:
    running = RunningCluster.known()
    if running is None:
        print("there is no cluster; bring one up with: make slurm-up")
        return 1
    print(running.exports())
    variables = {**os.environ, "SLURM_CONF": f"{running.folder}/slurm.conf"}
    for command in ("sinfo", "squeue"):
        subprocess.run([command], env=variables, check=False)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    orders = parser.add_subparsers(required=True)
    starting = orders.add_parser("up", help="bring it up and say how to reach it")
    starting.add_argument("--nodes", type=int, default=8)
    starting.add_argument("--accounting", action="store_true", help="with slurmdbd and MariaDB")
    starting.set_defaults(run=up)
    orders.add_parser("down", help="take it away").set_defaults(run=down)
    orders.add_parser("status", help="its nodes and queue").set_defaults(run=status)
    holding = orders.add_parser("hold")
    holding.add_argument("shape")
    holding.set_defaults(run=hold)
    arguments = parser.parse_args()
    code: int = arguments.run(arguments)
    return code


if __name__ == "__main__":
    sys.exit(main())
