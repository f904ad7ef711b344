"""What goes wrong in an allocation, on a real Slurm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.schemas.choices import TrialState
from evaluators.attempt import attempts_of
from evaluators.trial import TrialRequest
from tests.cluster.cluster import Cluster
from tests.evaluators.slurm.pilot.scene import (
    PROFILE,
    SECOND,
    commands_of,
    kill_commands_of,
    pilot,
    ran_on,
    requests,
    stay,
)
from tests.evaluators.slurm.trials import (
    NODE_FAILS_FIRST,
    REFUSED_FIRST,
    finish,
    run,
)
from tests.patience import until

pytestmark = [pytest.mark.xdist_group("slurm-pilot"), pytest.mark.usefixtures("slurm")]

STUBBORN = "{srun} bash -c 'trap \"\" TERM; echo $SLURMD_NODENAME >>ran; sleep 99; sleep 98'"
FIRST_HANGS = (
    "[[ $PWD == */attempt-1 ]] && s=99 || s=0.1; export s;"
    "{srun} bash -c 'echo $SLURMD_NODENAME >>ran; sleep $s' && echo 0.25 >result"
)


def started(trial: TrialRequest, attempt: int = 1) -> bool:
    """Whether every rank says that it runs."""
    ran = trial.directory / f"attempt-{attempt}" / "ran"
    ranks = 2 * trial.strategy.num_nodes
    return ran.exists() and len(ran.read_text().split()) == ranks


def steps(slurm: Cluster, attempt: str) -> list[str]:
    """Those of one alone: Slurm lists a step for a moment after its srun has ended."""
    listing = slurm.command("squeue", "--steps", "--noheader", "--format=%j")
    return [name for name in map(str.strip, listing.splitlines()) if name.startswith(f"{attempt}-")]


def test_cancelling_ends_one_trial_and_all_its_processes(slurm: Cluster, tmp_path: Path) -> None:
    doomed, waiting, other = *requests(tmp_path, 6, 6), *requests(tmp_path, 2, prefix="other")
    with pilot(f"if [[ $PWD == */t[01]/* ]]; then {STUBBORN}; else {SECOND}; fi") as backend:
        for trial in (doomed, waiting, other):
            backend.submit(trial)
        until(lambda: started(doomed))
        backend.cancel(waiting.token)
        backend.cancel(doomed.token)
        outcomes = finish(backend, doomed, waiting, other)
        assert not commands_of(doomed)
        assert not steps(slurm, "t0.1")
        (after,) = run(backend, *requests(tmp_path, 8, prefix="other-later"))
    assert [o.status for o in outcomes] == [TrialState.CANCELLED] * 2 + [TrialState.OK]
    assert outcomes[0].duration_s > 0
    assert outcomes[1].duration_s == 0
    assert after.status is TrialState.OK


def test_a_killed_scripts_steps_are_ended_and_the_trial_restarts(
    slurm: Cluster, tmp_path: Path
) -> None:
    (trial,) = requests(tmp_path, 2)
    with pilot(FIRST_HANGS) as backend:
        backend.submit(trial)
        until(lambda: started(trial))
        kill_commands_of(trial)
        (outcome,) = finish(backend, trial)
        assert not steps(slurm, "t0.1")
    assert outcome.status is TrialState.OK
    assert ran_on(trial, 2) == ran_on(trial, 1), "the nodes were free again"


def test_a_node_that_fails_ends_its_own_trial_alone(slurm: Cluster, tmp_path: Path) -> None:
    trial, neighbour = *requests(tmp_path, 3), *requests(tmp_path, 2, prefix="neighbour")
    text = f"if [[ $PWD == */t0/* ]]; then {FIRST_HANGS}; else sleep 3; {SECOND}; fi"
    with pilot(text) as backend:
        backend.submit(trial)
        backend.submit(neighbour)
        until(lambda: started(trial))
        failed = ran_on(trial)[-1]
        slurm.down(failed)
        outcomes = finish(backend, trial, neighbour)
        calls = backend.tracker.slurm.calls["sbatch"]
    assert [outcome.status for outcome in outcomes] == [TrialState.OK] * 2
    assert failed not in ran_on(trial, 2)
    assert not (neighbour.directory / "attempt-2").exists()
    assert calls == 1, "the allocation lives on without its node"
    assert (tmp_path / "failed-nodes").read_text().startswith(f"{failed} t0.1-")
    assert outcomes[0].duration_s > stay(trial, 2).end - stay(trial, 2).begin


def test_a_lost_allocation_is_replaced_without_its_node(slurm: Cluster, tmp_path: Path) -> None:
    """The first node of an allocation takes all of it along when it fails."""
    (trial,) = requests(tmp_path, 3)
    profile = replace(PROFILE, pilot=replace(PROFILE.pilot, nodes=4))
    with pilot(FIRST_HANGS, profile=profile) as backend:
        backend.submit(trial)
        until(lambda: started(trial))
        slurm.down("n01")
        (outcome,) = finish(backend, trial)
    assert outcome.status is TrialState.OK
    assert "n01" not in ran_on(trial, 2)


def test_an_allocation_cancelled_while_it_waits_is_not_replaced(
    slurm: Cluster, tmp_path: Path
) -> None:
    slurm.command(
        *("sbatch", "-N1", "--exclusive", "--output=/dev/null", "--wrap=sleep 1000"),
        "--job-name=other",
    )
    (trial,) = requests(tmp_path, 8)
    with pilot() as backend:
        backend.submit(trial)
        named = "--format=%i %j"
        until(lambda: "autotune" in slurm.command("squeue", "--noheader", named))
        lines = slurm.command("squeue", "--noheader", named).splitlines()
        slurm.command("scancel", *[line.split()[0] for line in lines if "autotune" in line])
        (outcome,) = finish(backend, trial)
        calls = backend.tracker.slurm.calls["sbatch"]
    assert outcome.status is TrialState.CANCELLED
    assert "was cancelled by" in str(outcome.error)
    assert calls == 1


@pytest.mark.parametrize(
    ("text", "failed"), [(REFUSED_FIRST, []), (NODE_FAILS_FIRST, ["n05"])], ids=["refused", "node"]
)
def test_what_srun_blames_on_slurm_is_tried_again(
    text: str, failed: list[str], tmp_path: Path
) -> None:
    (trial,) = requests(tmp_path, 1)
    with pilot(text) as backend:
        (outcome,) = run(backend, trial)
        calls = backend.tracker.slurm.calls["sbatch"]
    assert outcome.status is TrialState.OK
    assert calls == 1, "in the same allocation"
    first, _ = attempts_of(trial)
    ledger = tmp_path / "failed-nodes"
    noted = ledger.read_text().splitlines() if ledger.exists() else []
    assert noted == [f"{node} {first.name}" for node in failed]
    assert not list(first.ended_folder.iterdir())
