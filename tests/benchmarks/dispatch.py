"""Idle nodes between trials: ours through Slurm and Ray, DeepHyper's evaluators, and submitit.

    python tests/benchmarks/dispatch.py [--trials N] [--seconds S] [--width W] [--json OUT]
                                        [--methods METHOD …]

One real Slurm of 8 virtual nodes on this machine, one search loop for all: as many trials at once
as the nodes hold, and the next one is submitted when a trial has ended and its result was read,
because a search decides then. A trial does nothing for a fixed time on all its nodes, and writes
down when it began and ended on each of them. `queued` is the way of ORNL's study: a worker that
calls srun on the nodes that it took from a queue, inside one allocation. `slurm` is no search: all
jobs are handed over at once, and what lies between two of them is Slurm's own. `ray` is ours on a
real Ray cluster of 8 nodes, where a trial has an actor on each of its nodes; `ray-tasks` is
DeepHyper's own evaluator for Ray on the same cluster, which runs a trial as one task on one node,
however wide it is: eight at once.

For each node: a *gap* is the time from a trial's end to the next one's begin; *idle* is the share
of the time from the first begin to the last end that no trial ran. Calls are all starts of
Slurm's client programs, by whomever, divided by the number of trials.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shlex
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Literal

from deephyper.evaluator import Evaluator, ThreadPoolEvaluator, queued

from autotune.measurement.metrics import AccumulationMeasurement
from autotune.schemas.choices import TrialState
from evaluators.cluster import ClusterProfile
from evaluators.cluster.profile import Pilot, Polling, RayCluster, Tasks
from evaluators.program import AttemptEnd, Launcher
from evaluators.ray.deephyper import RayEvaluator
from evaluators.slurm.deephyper import SlurmEvaluator
from evaluators.trial import TrialOutcome, TrialRequest
from search_spaces.catalog import load_model
from search_spaces.choices import DimensionChoice
from search_spaces.space import SearchSpace
from tests.cluster import Cluster
from tests.evaluators.slurm.trials import machine
from tests.ray_nodes import CPUS_OF_NODE, RayNodes

NODES = 8
CLIENTS = ("sbatch", "srun", "squeue", "sacct", "scancel", "scontrol", "sinfo", "salloc")
CALLS = "AUTOTUNE_CALLS"
MACHINE = replace(machine(1), memory_gib=1000.0)
RAY_ADDRESS = "AUTOTUNE_RAY_ADDRESS"

SLURM_NODE = '"$SLURMD_NODENAME"'
RAY_NODE = "$(ps -o ppid= -p $PPID | tr -d ' ')"
"""The raylet, whose child is the worker that this is a child of: all nodes are one host."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What every method runs: `trials` of `seconds` on `width` nodes each."""

    trials: int
    seconds: float
    width: int
    marks: Path
    node: str = SLURM_NODE

    @property
    def at_once(self) -> int:
        return NODES // self.width

    def task(self, number: int) -> str:
        """Bash, run once on each node of the trial."""
        file = shlex.quote(str(self.marks / f"{number}-")) + self.node
        now = "date +%s.%N"
        return f'file={file}; began=$({now}); sleep {self.seconds}; echo "$began $({now})" >"$file"'


@dataclass(frozen=True, kw_only=True)
class Sleeper:
    """The fixed time as a program of our backends; the seed of a request is its number."""

    load: Load
    name: str = "sleeper"

    def files(self, request: TrialRequest, folder: Path) -> Mapping[str, str]:  # noqa: ARG002
        return {}

    def commands(self, request: TrialRequest, folder: Path, launcher: Launcher) -> str:  # noqa: ARG002
        number = request.strategy.micro_batch_size
        return launcher.command("bash", "-c", shlex.quote(self.load.task(number)))

    def cause(self, request: TrialRequest, folder: Path) -> None:  # noqa: ARG002
        return None

    def outcome(self, request: TrialRequest, folder: Path, ended: AttemptEnd) -> TrialOutcome:  # noqa: ARG002
        fine = ended.status is None and ended.exit_code == 0
        return TrialOutcome(
            status=ended.status or (TrialState.OK if fine else TrialState.CRASHED),
            started_at=ended.started_at,
            duration_s=ended.duration_s,
            simulated=False,
            measurements=tuple(
                AccumulationMeasurement(
                    gradient_accumulation_steps=steps, iteration_times_s=(float(steps),)
                )
                for steps in request.protocol.accumulations
            ),
            error=None if fine else f"exit code {ended.exit_code} {ended.reason}",
        )


def ours(mode: Literal["sbatch", "pilot"]) -> Callable[[Load], None]:
    """A search's loop over our evaluator; a micro-batch size of its own tells each trial."""

    def run(load: Load) -> None:
        profile = ClusterProfile(
            name="virtual",
            polling=Polling(interval_s=0.5),
            pilot=Pilot(nodes=NODES, time_limit_h=1.0),
        )
        evaluator = SlurmEvaluator(
            profile=profile,
            program=Sleeper(load=load),
            mode=mode,
            space=space_of(load, mode),
            directory=load.marks.parent / f"trials-{mode}",
            num_workers=load.at_once,
        )
        search(evaluator, numbers(load), at_once=load.at_once)
        evaluator.close()

    return run


def space_of(load: Load, name: str) -> SearchSpace:
    dimensions: dict[str, DimensionChoice] = {
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "micro_batch_size": list(range(1, load.trials + 1)),
        "gradient_accumulation_steps": 8,
        "zero_stage": 1,
        "num_nodes": load.width,
    }
    named = replace(MACHINE, name=name)
    return SearchSpace.build(load_model("gpt-1.4b"), named, nodes=NODES, choices=dimensions)


def numbers(load: Load) -> Iterator[dict[str, Any]]:
    return iter([{"micro_batch_size": number} for number in range(1, load.trials + 1)])


def on_ray(load: Load) -> None:
    """The same loop over our evaluator of Ray."""
    load = replace(load, node=RAY_NODE)
    evaluator = RayEvaluator(
        address=os.environ[RAY_ADDRESS],
        profile=ClusterProfile(
            name="ray",
            tasks=Tasks(cpus_per_task=CPUS_OF_NODE),
            ray=RayCluster(folder=str(load.marks.parent)),
        ),
        program=Sleeper(load=load),
        space=space_of(load, "ray"),
        directory=load.marks.parent / "trials-ray",
        num_workers=load.at_once,
    )
    search(evaluator, numbers(load), at_once=load.at_once)
    evaluator.close()


def by_ray_tasks(load: Load) -> None:
    """DeepHyper's own evaluator of Ray."""
    load = replace(load, node=RAY_NODE)

    def run(job: Any) -> float:
        task = load.task(job.parameters["micro_batch_size"])
        subprocess.run(["bash", "-c", task], check=True)
        return 1.0

    options = {
        "address": os.environ[RAY_ADDRESS],
        "include_dashboard": None,
        "num_cpus_per_task": CPUS_OF_NODE,
        "num_workers": NODES,
    }
    evaluator = Evaluator.create(run, method="ray", method_kwargs=options)
    search(evaluator, numbers(load), at_once=NODES)
    evaluator.close()


def search(evaluator: Any, proposals: Iterator[dict[str, Any]], *, at_once: int) -> None:
    """DeepHyper's own loop without the thinking: a proposal for each trial that has ended."""
    evaluator.submit(list(itertools.islice(proposals, at_once)))
    while evaluator.num_jobs_submitted > evaluator.num_jobs_gathered:
        done = evaluator.gather("BATCH", size=1)
        if following := list(itertools.islice(proposals, len(done))):
            evaluator.submit(following)


def by_queue(load: Load) -> None:
    """DeepHyper's `queued` evaluator inside one allocation."""
    sleep = ["sbatch", "--parsable", f"--nodes={NODES}", "--exclusive", "--output=/dev/null"]
    job = called(*sleep, "--wrap", "sleep 3600")
    try:
        while called("squeue", "--noheader", "--jobs", job, "--format=%T") != "RUNNING":
            time.sleep(0.2)

        def run(job_of_deephyper: Any, dequed: Sequence[str] = ()) -> float:
            number = job_of_deephyper.parameters["micro_batch_size"]
            shape = [f"--nodes={load.width}", f"--ntasks={load.width}", "--ntasks-per-node=1"]
            where = [f"--jobid={job}", "--exact", f"--nodelist={','.join(dequed)}"]
            called("srun", *where, *shape, "bash", "-c", load.task(number))
            return 1.0

        evaluator = queued(ThreadPoolEvaluator)(
            run,
            num_workers=load.at_once,
            queue=[f"n{node:02d}" for node in range(1, NODES + 1)],
            queue_pop_per_task=load.width,
        )
        search(evaluator, numbers(load), at_once=load.at_once)
        evaluator.close()
    finally:
        called("scancel", job)


def by_submitit(load: Load) -> None:
    """submitit's executor, and the loop that its documentation shows."""
    import submitit

    executor = submitit.SlurmExecutor(folder=load.marks.parent / "submitit")
    executor.update_parameters(
        nodes=load.width, ntasks_per_node=1, time=10, exclusive=True, job_name="submitit"
    )
    following = iter(range(1, load.trials + 1))

    def submit(number: int) -> Any:
        return executor.submit(subprocess.check_call, ["bash", "-c", load.task(number)])

    running = [submit(number) for number in itertools.islice(following, load.at_once)]
    while running:
        for job in [job for job in running if job.done()]:
            job.results()
            running.remove(job)
            running += [submit(number) for number in itertools.islice(following, 1)]
        time.sleep(0.1)


def by_slurm_alone(load: Load) -> None:
    """Every job is in the queue from the beginning."""
    for number in range(1, load.trials + 1):
        task = shlex.join(["srun", "bash", "-c", load.task(number)])
        shape = [f"--nodes={load.width}", "--ntasks-per-node=1", "--exclusive"]
        called("sbatch", *shape, "--output=/dev/null", "--wrap", task)
    while len(list(load.marks.iterdir())) < load.trials * load.width:
        time.sleep(0.2)


METHODS: Mapping[str, Callable[[Load], None]] = {
    "pilot": ours("pilot"),
    "sbatch": ours("sbatch"),
    "queued": by_queue,
    "submitit": by_submitit,
    "slurm": by_slurm_alone,
    "ray": on_ray,
    "ray-tasks": by_ray_tasks,
}
ON_RAY = frozenset({"ray", "ray-tasks"})


def called(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{shlex.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


@contextmanager
def counted(folder: Path) -> Iterator[Path]:
    """Each client of Slurm, called by its name, first adds a line to the file."""
    calls, clients = folder / "calls", folder / "clients"
    clients.mkdir()
    calls.touch()
    for name in CLIENTS:
        real = called("which", name)
        (clients / name).write_text(f'#!/bin/sh\necho {name} >>"${CALLS}"\nexec {real} "$@"\n')
        (clients / name).chmod(0o755)
    before = os.environ["PATH"]
    os.environ |= {"PATH": f"{clients}:{before}", CALLS: str(calls)}
    try:
        yield calls
    finally:
        os.environ["PATH"] = before


def figures(load: Load, *, calls: int, marks_of_trial: int) -> dict[str, float]:
    """From the marks of all trials on all nodes."""
    busy: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for mark in load.marks.iterdir():
        begin, end = map(float, mark.read_text().split())
        busy[mark.name.partition("-")[2]].append((begin, end))
    gaps, idle, whole = [], 0.0, 0.0
    for spans in map(sorted, busy.values()):
        between = [after[0] - before[1] for before, after in itertools.pairwise(spans)]
        gaps += between
        idle += sum(between)
        whole += spans[-1][1] - spans[0][0]
    ran = sum(len(spans) for spans in busy.values())
    if ran != load.trials * marks_of_trial:
        expected = load.trials * marks_of_trial
        raise SystemExit(f"{ran} of {expected} marks are there: a trial was lost")
    return {
        "median_gap_s": median(gaps),
        "idle_fraction": idle / whole,
        "slurm_calls_per_trial": calls / load.trials,
    }


def measured(method: str, arguments: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="autotune-dispatch-") as name:
        folder = Path(name)
        marks = folder / "marks"
        marks.mkdir()
        load = Load(
            trials=arguments.trials, seconds=arguments.seconds, width=arguments.width, marks=marks
        )
        with counted(folder) as calls:
            METHODS[method](load)
            return figures(
                load,
                calls=len(calls.read_text().splitlines()),
                marks_of_trial=1 if method == "ray-tasks" else load.width,
            )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20, help="of each method")
    parser.add_argument("--seconds", type=float, default=10.0, help="that a trial takes")
    parser.add_argument("--width", type=int, default=2, help="nodes of a trial")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--json", type=Path, metavar="OUT")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    print(f"{given.trials} trials of {given.seconds:g} s on {given.width} of {NODES} nodes each\n")
    print(f"{'':10} {'median gap':>12} {'idle':>8} {'Slurm calls a trial':>22}")
    results: dict[str, dict[str, float]] = {}
    with ExitStack() as clusters:
        if ON_RAY.issuperset(given.methods):
            os.environ[RAY_ADDRESS] = clusters.enter_context(RayNodes(NODES)).address
        else:
            cluster = clusters.enter_context(Cluster(nodes=NODES, gpus=1, accounting=True))
            os.environ |= cluster.environment
        for method in given.methods:
            if method in ON_RAY and RAY_ADDRESS not in os.environ:
                clusters.close()
                os.environ[RAY_ADDRESS] = clusters.enter_context(RayNodes(NODES)).address
            row = results[method] = measured(method, given)
            cells = f"{row['median_gap_s']:10.2f} s {100 * row['idle_fraction']:6.1f} %"
            print(f"{method:10} {cells} {row['slurm_calls_per_trial']:22.1f}", flush=True)
    if {"sbatch", "slurm"} <= results.keys():
        added = results["sbatch"]["median_gap_s"] - results["slurm"]["median_gap_s"]
        print(f"\nsbatch mode adds {added:.2f} s to what Slurm itself takes between two jobs")
    if given.json:
        rows = {name: row for name, row in results.items() if name != "slurm"}
        given.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
