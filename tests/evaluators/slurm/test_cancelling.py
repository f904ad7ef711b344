"""Trials that are ended by us, by somebody else, or kept from starting."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.schemas.choices import TrialState
from evaluators.attempt import Attempt
from evaluators.cluster.profile import Retries
from evaluators.slurm.job_decision import FOLDER_NOT_SHARED
from tests.cluster.cluster import Cluster
from tests.evaluators.slurm.trials import (
    PROFILE,
    SLOW_FIRST,
    Backends,
    abandoned,
    begun,
    finish,
    request,
    run,
    standing,
    wait_begun,
)
from tests.patience import until

pytestmark = pytest.mark.xdist_group("slurm")

ENDLESS = "{srun} sleep 1000"


def test_cancelling_ends_our_jobs_and_only_ours(
    backends: Backends, slurm: Cluster, tmp_path: Path
) -> None:
    """One trial runs, one waits, and one was never sent; a stranger's job has the same shape."""
    alone = replace(PROFILE, slurm=replace(PROFILE.slurm, exclusive=True))
    backend = backends.make(ENDLESS, profile=alone)
    foreign = slurm.command(
        "sbatch", "--parsable", "--job-name=foreign", "--output=/dev/null", "--wrap=sleep 1000"
    ).strip()
    running, waiting = request(tmp_path, "running", nodes=7), request(tmp_path, "waiting", nodes=7)
    backend.submit(running)
    until(lambda: standing(backend, running).phase == "running")
    backend.submit(waiting)
    until(lambda: standing(backend, waiting).reason == "waiting for free nodes (Resources)")
    unsent = request(tmp_path, "unsent")
    backend.submit(unsent)
    for trial in (unsent, running, waiting):
        backend.cancel(trial.token)
        backend.cancel(trial.token)
    outcomes = finish(backend, running, waiting, unsent)
    assert {o.status for o in outcomes} == {TrialState.CANCELLED}
    assert {o.error for o in outcomes} == {"cancelled"}
    assert outcomes[1].duration_s == outcomes[2].duration_s == 0
    until(lambda: list(slurm.jobs()) == [foreign])
    assert backends.make().poll([waiting])[waiting.token] == outcomes[1]


def test_a_job_that_comes_too_late_only_ends(
    backends: Backends, slurm: Cluster, tmp_path: Path
) -> None:
    trial = request(tmp_path)
    backend = backends.make(ENDLESS)
    backend.submit(trial)
    until(lambda: standing(backend, trial).phase == "running")
    backend.cancel(trial.token)
    finish(backend, trial)
    shutil.rmtree(trial.directory / "attempt-1" / "claim", ignore_errors=True)
    slurm.command("sbatch", str(trial.directory / "attempt-1" / "job.sh"))
    until(lambda: not slurm.jobs())
    assert not begun(trial)


def test_a_trial_whose_job_somebody_else_cancelled_runs_again(
    backends: Backends, slurm: Cluster, tmp_path: Path
) -> None:
    """Up to a limit. Without accounting nobody can say who did it; one ran, and one was held."""
    cancelled = replace(PROFILE, retries=Retries(attempts=2))
    backend, trial = backends.make(SLOW_FIRST), request(tmp_path, "running")
    hold = replace(cancelled, slurm=replace(PROFILE.slurm, directives=("--hold",)))
    holding, held = backends.make(ENDLESS, profile=hold), request(tmp_path, "held")
    backend.submit(trial)
    holding.submit(held)
    wait_begun(backend, trial)
    slurm.command("scancel", until(lambda: standing(backend, trial).job_id))
    for number in (1, 2):
        name = Attempt(request=held, number=number).name
        until(lambda: holding.poll([held]) and name in queue(slurm))  # noqa: B023
        slurm.command("scancel", f"--name={name}")
    (ended,) = finish(backend, trial)
    assert ended.status is TrialState.OK
    by = "its job was cancelled by somebody else, not by this campaign"
    assert abandoned(trial).items() >= {"status": "cancelled", "reason": by}.items()
    (given_up,) = finish(holding, held)
    assert given_up.status is TrialState.CANCELLED
    assert given_up.error == f"{by}, in each of 2 attempts"


def queue(slurm: Cluster) -> list[str]:
    return slurm.command("squeue", "--noheader", "--format=%j").split()


def test_what_sbatch_refuses_is_quoted(backends: Backends, tmp_path: Path) -> None:
    profile = replace(PROFILE, slurm=replace(PROFILE.slurm, partition="nowhere"))
    trials = [request(tmp_path, f"trial-{n}") for n in range(3)]
    outcomes = run(backends.make(profile=profile), *trials)
    assert {o.status for o in outcomes} == {TrialState.REFUSED}
    (error,) = {o.error for o in outcomes}
    assert error is not None
    assert "Invalid partition name specified" in error
    assert {o.duration_s for o in outcomes} == {0.0}


def test_a_folder_unseen_by_nodes_is_reported_alike_each_time(
    backends: Backends, slurm: Cluster, tmp_path: Path
) -> None:
    """It is taken away while its job is held, so that nothing is where the job looks for it."""
    holding = replace(PROFILE, slurm=replace(PROFILE.slurm, directives=("--hold",)))
    backend = backends.make(profile=holding)
    trials = [request(tmp_path, f"trial-{n}") for n in range(2)]
    for each in trials:
        backend.submit(each)
    until(lambda: all(standing(backend, each).job_id for each in trials))
    held = [standing(backend, each).job_id or "" for each in trials]
    for each, job_id in zip(trials, held, strict=True):
        (each.directory / "attempt-1").rename(each.directory / "elsewhere")
        slurm.command("scontrol", "release", job_id)
    outcomes = finish(backend, *trials)
    assert {o.status for o in outcomes} == {TrialState.CRASHED}
    assert {o.error for o in outcomes} == {FOLDER_NOT_SHARED}
