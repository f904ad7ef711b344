"""Services that end and come back, and one that is started inside an allocation."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import tests
from autotune.schemas.choices import TrialState
from tests.cluster.cluster import Cluster
from tests.evaluators.slurm.pilot.scene import (
    PROFILE,
    SECOND,
    commands_of,
    gaps,
    kill_commands_of,
    pilot,
    ran_on,
    requests,
    stay,
)
from tests.evaluators.slurm.trials import finish, run, standing
from tests.patience import until

pytestmark = [pytest.mark.xdist_group("slurm-pilot"), pytest.mark.usefixtures("slurm")]

ROOT = Path(tests.__file__).parents[1]
SERVICE = [sys.executable, "-m", "tests.evaluators.slurm.pilot.service"]
SLOW = SECOND.replace("sleep 1", "sleep 2")


@contextmanager
def service(trials: Path, text: str, *widths: int) -> Iterator[subprocess.Popen[bytes]]:
    """Killed in the end, and nothing that it started is."""
    process = subprocess.Popen([*SERVICE, str(trials), text, *map(str, widths)], cwd=ROOT)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_what_a_killed_service_left_running_is_found_again(tmp_path: Path) -> None:
    widths = [4, 2, 4, 8, 1]
    trials = requests(tmp_path, *widths)
    *trials, cancelled = trials
    text = f"if [[ $PWD == */{cancelled.token}/* ]]; then {{srun}} sleep 99; else {SLOW}; fi"
    with service(tmp_path, text, *widths):
        until(lambda: all((trial.directory / "attempt-1" / "ran").exists() for trial in trials[:2]))
        until(lambda: (cancelled.directory / "attempt-1" / "claim" / "job").exists())
    with pilot(text) as backend:
        # The one that still runs is not asked about at first: its nodes are not free all the same.
        backend.submit(trials[3])
        backend.submit(trials[2])
        until(lambda: standing(backend, cancelled).phase == "running")
        backend.cancel(cancelled.token)
        *outcomes, ended = finish(backend, *trials, cancelled)
        calls = backend.tracker.slurm.calls["sbatch"]
    assert {outcome.status for outcome in outcomes} == {TrialState.OK}
    assert ended.status is TrialState.CANCELLED
    assert not commands_of(cancelled)
    assert calls == 0, "the allocation was found again"
    assert all(ran_on(trial) == sorted(2 * stay(trial).nodes) for trial in trials)
    assert min(gaps([stay(trial) for trial in trials])) > 0
    assert not list(tmp_path.glob("*/attempt-2"))


def test_what_another_living_service_holds_is_left_to_it(tmp_path: Path) -> None:
    """Once that has let go, its allocation is found again."""
    profile = replace(PROFILE, pilot=replace(PROFILE.pilot, nodes=4))
    mine, theirs, later = requests(tmp_path, 4, 4, 4)
    text = "echo 0.25 >result"
    with pilot(text, profile=profile) as backend:
        (first,) = run(backend, mine)
        with pilot(text, profile=profile) as other:
            (second,) = run(other, theirs)
    assert set(stay(mine).nodes).isdisjoint(stay(theirs).nodes)
    with pilot(text, profile=profile) as backend:
        (third,) = run(backend, later)
    assert first.job_id != second.job_id == third.job_id


def test_a_trial_whose_script_died_with_its_service_starts_again(tmp_path: Path) -> None:
    """As after the host was switched off: the step runs on, and nobody waits for it."""
    (trial,) = requests(tmp_path, 8)
    text = SECOND.replace("sleep 1", "if [[ $PWD == */attempt-1 ]]; then sleep 99; fi")
    with service(tmp_path, text, 8):
        until(lambda: (trial.directory / "attempt-1" / "ran").exists())
    kill_commands_of(trial)
    with pilot(text) as backend:
        (outcome,) = finish(backend, trial)
    assert outcome.status is TrialState.OK
    assert (trial.directory / "attempt-2").exists()


def test_a_service_inside_an_allocation_uses_it(slurm: Cluster, tmp_path: Path) -> None:
    trials, output = tmp_path / "trials", tmp_path / "output"
    command = shlex.join([*SERVICE, str(trials), SECOND, "4", "2", "4", "9"])
    slurm.command(
        *("sbatch", "--nodes=8", "--exclusive", "--gpus-per-node=2", "--ntasks-per-node=2"),
        *("--time=10", "--job-name=mine", f"--chdir={ROOT}", f"--output={output}"),
        f"--wrap={command}",
    )
    until(lambda: not slurm.jobs())
    lines = output.read_text().splitlines()
    (job,) = {line.split()[1] for line in lines[:3]}
    assert lines[:3] == [f"ok {job} None"] * 3
    assert lines[3] == ("refused None it needs 9 nodes, and 8 of the allocation can be used")
    stays = [stay(trial) for trial in requests(trials, 4, 2, 4)]
    assert min(gaps(stays)) > 0
    assert not (trials / "allocations").exists()
