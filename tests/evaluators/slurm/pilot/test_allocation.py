"""Many trials in one allocation, on a real Slurm."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import median

import pytest

from autotune.files import write_whole
from autotune.schemas.choices import TrialState
from evaluators.cluster.profile import Pilot
from evaluators.slurm.attempt_files import read_attempt_files
from evaluators.trial import TrialProgress, TrialRequest
from tests.cluster.cluster import Cluster
from tests.evaluators.slurm.pilot.scene import PROFILE, SECOND, gaps, pilot, ran_on, requests, stay
from tests.evaluators.slurm.trials import run
from tests.patience import until

pytestmark = [pytest.mark.xdist_group("slurm-pilot"), pytest.mark.usefixtures("slurm")]


def test_trials_of_several_widths_run_side_by_side(slurm: Cluster, tmp_path: Path) -> None:
    text = (
        "{srun} bash -c 'echo $SLURMD_NODENAME >>ran; echo gpus $CUDA_VISIBLE_DEVICES; sleep 1'"
        " && echo 0.25 >result"
    )
    trials = requests(tmp_path, 4, 2, 2)
    with pilot(text) as backend:
        outcomes = run(backend, *trials)
        calls = backend.tracker.slurm.calls
    assert {outcome.status for outcome in outcomes} == {TrialState.OK}
    stays = [stay(trial) for trial in trials]
    assert max(each.begin for each in stays) < min(each.end for each in stays)
    assert sorted(node for each in stays for node in each.nodes) == list(slurm.nodes)
    assert [ran_on(trial) for trial in trials] == [sorted(2 * each.nodes) for each in stays]
    assert all("gpus 0,1\n" in outcome.log_tail for outcome in outcomes)
    assert calls["sbatch"] == 1
    assert len({outcome.job_id for outcome in outcomes}) == 1
    assert len(slurm.jobs()) == 1


def test_the_next_trial_starts_as_soon_as_nodes_are_free(tmp_path: Path) -> None:
    trials = requests(tmp_path, *[4, 2, 1, 1, 2, 4, 1, 3, 2, 1, 2, 1, 4, 1, 2, 1])
    with pilot(SECOND.replace("sleep 1", "sleep 0.5")) as backend:
        outcomes = run(backend, *trials)
    assert {outcome.status for outcome in outcomes} == {TrialState.OK}
    between = gaps([stay(trial) for trial in trials])
    assert min(between) > 0, "no two trials shared a node"
    assert median(between) < 0.3
    assert all(ran_on(trial) == sorted(2 * stay(trial).nodes) for trial in trials)


def test_what_no_allocation_can_hold_is_refused(slurm: Cluster, tmp_path: Path) -> None:
    wide, long = *requests(tmp_path, 9), *requests(tmp_path, 1, prefix="long", time_limit_s=1800.0)
    with pilot() as backend:
        outcomes = run(backend, wide, long)
    assert [outcome.status for outcome in outcomes] == [TrialState.REFUSED] * 2
    assert outcomes[0].error == "it needs 9 nodes, and the allocation of pilot mode has 8"
    assert outcomes[1].error is not None
    assert "too long for the allocation" in outcomes[1].error
    assert not slurm.jobs()


def test_what_sbatch_says_of_the_allocation_is_quoted(tmp_path: Path) -> None:
    profile = replace(PROFILE, slurm=replace(PROFILE.slurm, partition="nowhere"))
    with pilot(profile=profile) as backend:
        outcomes = run(backend, *requests(tmp_path, 1, 2))
    assert [outcome.status for outcome in outcomes] == [TrialState.REFUSED] * 2
    assert all("invalid partition" in str(outcome.error) for outcome in outcomes)
    assert outcomes[0].error == outcomes[1].error


def test_trials_say_what_their_allocation_waits_for(slurm: Cluster, tmp_path: Path) -> None:
    options = ("--parsable", "-N1", "--exclusive", "--output=/dev/null")
    job = slurm.command("sbatch", *options, "--wrap=sleep 1000").strip()
    (trial,) = requests(tmp_path, 2)
    with pilot() as backend:
        backend.submit(trial)

        def reason() -> str:
            answer = backend.poll([trial])[trial.token]
            assert isinstance(answer, TrialProgress)
            return answer.reason

        until(
            lambda: reason().startswith("waiting for the allocation of 8 nodes: waiting for free")
        )
        assert reason().endswith("(Resources)")
        backend.leave()
        assert len(slurm.jobs()) == 2, "a trial waits for the allocation"
        slurm.command("scancel", job)
    with pilot() as backend:
        assert run(backend, trial)[0].status is TrialState.OK
        backend.leave()
    until(lambda: not slurm.jobs())
    (allocation,) = tmp_path.glob("allocations/*/*/")
    assert (allocation / "abandoned.json").exists(), "nobody takes it up again"


def test_an_idle_allocation_is_given_back_and_requested_again(
    slurm: Cluster, tmp_path: Path
) -> None:
    first, second = requests(tmp_path, 1, 1)
    profile = replace(PROFILE, pilot=Pilot(nodes=8, time_limit_h=0.5, idle_release_s=0.3))
    with pilot("echo 0.25 >result", profile=profile) as backend:
        (one,) = run(backend, first)
        until(lambda: not slurm.jobs())
        (two,) = run(backend, second)
    assert (one.status, two.status) == (TrialState.OK, TrialState.OK)
    assert one.job_id != two.job_id


def test_no_trial_starts_that_could_outlast_the_allocation(slurm: Cluster, tmp_path: Path) -> None:
    first, second = requests(tmp_path, 1, 1, time_limit_s=60.0)
    with pilot("echo 0.25 >result") as backend:
        (one,) = run(backend, first)
        slurm.command("scontrol", "update", f"JobId={one.job_id}", "TimeLimit=1")
        calls = backend.tracker.slurm.calls
        seen = calls["squeue"] + 2
        until(lambda: calls["squeue"] >= seen)
        (two,) = run(backend, second)
    assert (one.status, two.status) == (TrialState.OK, TrialState.OK)
    assert one.job_id != two.job_id


def test_an_allocation_that_nobody_comes_back_to_ends_by_itself(
    slurm: Cluster, tmp_path: Path
) -> None:
    with pilot("echo 0.25 >result") as backend:
        run(backend, *requests(tmp_path, 1))
    assert slurm.jobs()
    (lease,) = tmp_path.glob("allocations/*/*/lease")
    numbers = count()

    def renew() -> None:
        """Again and again: the job ignores the lease that it begins with, and may begin late."""
        write_whole(lease, f"0 {next(numbers):x}\n")

    until(lambda: not slurm.jobs(), step=renew)


def intended_at(trial: TrialRequest) -> float:
    """When it was chosen to run; processes of several may begin in another order."""
    intended_at = read_attempt_files(trial.directory / "attempt-1").intended_at
    assert intended_at is not None
    return intended_at


def test_ten_groups_share_the_nodes(tmp_path: Path) -> None:
    trials = [
        trial
        for group in "abcdefghij"
        for trial in requests(tmp_path, 2, 2, 2, prefix=group, group=group)
    ]
    with pilot("sleep 0.3; echo 0.25 >result") as backend:
        outcomes = run(backend, *trials)
    assert {outcome.status for outcome in outcomes} == {TrialState.OK}
    groups = [trial.group for trial in sorted(trials, key=intended_at)]
    # Four are chosen at once, so the order within four says nothing; later ones follow what each
    # group has used, which depends on how busy the machine is.
    assert set(groups[:12]) == set("abcdefghij")
