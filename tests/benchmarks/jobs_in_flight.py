"""What 500 jobs in flight cost the runner, and Slurm: processor time and status calls.

    python tests/benchmarks/jobs_in_flight.py [--jobs N] [--seconds S] [--json OUT]

A real Slurm on this machine whose nodes are drained, ten campaigns of a real service, and one real
runner, which has submitted all of their trials and waits. Beside it a watcher that asks about each
job by itself once in five seconds, which is how such things are often written; the ratio is ours
over its own, in processor time with that of the commands that were called.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from autotune.schemas import TrialState
from tests.cluster import Cluster
from tests.server.slurm.scene import RunnerProcess, Scene, until

CAMPAIGNS = 10
EVERY_S = 5.0
SUBMIT_LIMIT_S = 300.0


def processor_time_s(process: psutil.Process) -> float:
    """Its own and that of the children which it has waited for."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def share(process: psutil.Process, work: Callable[[], None]) -> float:
    """Of one core, while `work` lasts."""
    began, before = time.monotonic(), processor_time_s(process)
    work()
    return (processor_time_s(process) - before) / (time.monotonic() - began)


def ask_one_by_one(job_ids: list[str], *, seconds: float) -> float:
    """Shares of a core that a watcher takes with one call a job in each interval."""
    me = psutil.Process()
    rounds = max(1, round(seconds / EVERY_S))
    before = processor_time_s(me)
    for job in job_ids:
        subprocess.run(["squeue", "--noheader", "--jobs", job], capture_output=True, check=False)
    return (processor_time_s(me) - before) * rounds / seconds


def measure(scene: Scene, cluster: Cluster, *, jobs: int, seconds: float) -> dict[str, float]:
    each = jobs // CAMPAIGNS
    campaigns = [
        scene.create(trials=each, seed=n, nodes=1, pool_nodes=each) for n in range(CAMPAIGNS)
    ]
    runner = RunnerProcess(scene.settings)
    try:
        until(lambda: len(cluster.jobs()) >= jobs, SUBMIT_LIMIT_S, f"{jobs} jobs in the queue")
        time.sleep(3 * EVERY_S)  # until every trial's reason for waiting is written down
        ours = share(runner.process, lambda: time.sleep(seconds))
        theirs = ask_one_by_one(list(cluster.jobs()), seconds=seconds)
        pending = [t.state for c in campaigns for t in scene.trials(c)]
        assert set(pending) == {TrialState.PENDING}
    finally:
        runner.stop()
        scene.store.close()
    return {"jobs": jobs, "runner_core_share": ours, "one_by_one_core_share": theirs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--json", type=Path, metavar="OUT")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autotune-jobs-") as folder, Cluster() as cluster:
        os.environ |= cluster.environment
        for node in cluster.nodes:
            cluster.drain(node)
        scene = Scene.build(Path(folder), interval_s=EVERY_S)
        found = measure(scene, cluster, jobs=given.jobs, seconds=given.seconds)
    ratio = found["runner_core_share"] / found["one_by_one_core_share"]
    print(
        f"{given.jobs} jobs wait. The runner takes {found['runner_core_share']:.1%} of a core, one "
        f"call a job every {EVERY_S:g} s takes {found['one_by_one_core_share']:.1%}: {ratio:.2f} x"
    )
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
