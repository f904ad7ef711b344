"""What became of attempts whose processes are gone, as pure functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.schemas import TrialState
from evaluators.cluster.profile import Pilot
from evaluators.program import AttemptEnd
from evaluators.slurm.attempt_files import AttemptFiles, Claim, ScriptEnd
from evaluators.slurm.job_decision import Abandon, StepRefused
from evaluators.slurm.pilot.allocation import NO_LOSS, NodeLoss, RunningAllocation, node_loss_in
from evaluators.slurm.pilot.allocation_policy import longest_s, why_refused, why_unfit
from evaluators.slurm.pilot.pilot_trial import verdict
from evaluators.slurm.pilot.step import StepPlace
from tests.evaluators.slurm.pilot.scene import asked

PLACE = StepPlace(job_id="7", nodes=("n01", "n02"), host="login")
CLAIM = Claim(job_id="7", at=1000.0, nodes="n01,n02")
LOST_NODE = NodeLoss(status=TrialState.NODE_FAIL, reason="a node failed under it")
NODE_FAILED = "srun: error: Node failure on n02\n"
NO_STEP = "srun: error: Unable to create step for job 7: Memory required by task is not available\n"


def judged(
    exit_code: int | None,
    *,
    took_s: float = 5.0,
    node_loss: NodeLoss = NO_LOSS,
    log_end: str = "",
    cancelled: bool = False,
    claimed: bool = True,
) -> AttemptEnd | Abandon | StepRefused:
    evidence = AttemptFiles(
        intended_at=999.0,
        claimed=claimed,
        claim=CLAIM if claimed else None,
        end=_end(exit_code, took_s),
    )
    return verdict(
        evidence,
        PLACE,
        node_loss=node_loss,
        log_end=log_end,
        time_limit_s=60.0,
        ended_at=1000.0 + took_s,
        cancelled=cancelled,
    )


def _end(exit_code: int | None, took_s: float) -> ScriptEnd | None:
    if exit_code is None:
        return None
    return ScriptEnd(exit_code=exit_code, began_at=1000.0, ended_at=1000.0 + took_s)


def status(found: AttemptEnd | Abandon | StepRefused) -> TrialState | None:
    return found.status if isinstance(found, AttemptEnd) else found.ended.status


def test_a_trial_that_ended_by_itself_is_for_its_program_to_judge() -> None:
    for code in (0, 1, 143):
        found = judged(code)
        assert isinstance(found, AttemptEnd)
        assert (found.status, found.exit_code, found.duration_s) == (None, code, 5.0)
        assert (found.host, found.job_id) == ("n01,n02", "7")


def test_what_ended_well_is_not_doubted() -> None:
    assert isinstance(judged(0, node_loss=LOST_NODE), AttemptEnd)
    assert isinstance(judged(0, node_loss=LOST_NODE, log_end=NO_STEP), AttemptEnd)


@pytest.mark.parametrize("code", [1, 137, None])
def test_a_failed_node_is_not_the_trials_fault(code: int | None) -> None:
    for found in (judged(code, node_loss=LOST_NODE), judged(code, log_end=NODE_FAILED)):
        assert isinstance(found, Abandon)
        assert status(found) is TrialState.NODE_FAIL


@pytest.mark.parametrize("node_loss", [NO_LOSS, LOST_NODE])
def test_an_srun_that_lost_its_node_and_ended_well_is_not_believed(node_loss: NodeLoss) -> None:
    found = judged(0, node_loss=node_loss, log_end=NODE_FAILED)
    assert isinstance(found, Abandon)
    assert status(found) is TrialState.NODE_FAIL
    cancelled = judged(0, node_loss=node_loss, log_end=NODE_FAILED, cancelled=True)
    assert isinstance(cancelled, AttemptEnd)
    assert status(cancelled) is TrialState.CANCELLED


def test_a_time_limit_holds_whatever_else_happened() -> None:
    for code in (124, 137):
        assert status(judged(code, took_s=60.5, node_loss=LOST_NODE)) is TrialState.TIMEOUT


def test_a_killed_script_is_started_again_with_its_time_counted() -> None:
    found = judged(None)
    assert isinstance(found, Abandon)
    assert (found.ended.status, found.ended.duration_s) == (TrialState.LOST, 5.0)


def test_a_script_that_never_began_held_no_nodes() -> None:
    found = judged(None, claimed=False)
    assert isinstance(found, Abandon)
    assert found.ended.duration_s == 0.0


@pytest.mark.parametrize("claimed", [True, False])
@pytest.mark.parametrize("node_loss", [NO_LOSS, LOST_NODE])
def test_a_cancelled_trial_is_never_started_again(claimed: bool, node_loss: NodeLoss) -> None:
    found = judged(None, claimed=claimed, node_loss=node_loss, cancelled=True)
    assert isinstance(found, AttemptEnd)
    assert found.status is TrialState.CANCELLED


def test_a_step_that_slurm_did_not_make_is_tried_again() -> None:
    found = judged(1, log_end=NO_STEP)
    assert isinstance(found, StepRefused)
    assert "Memory required by task is not available" in found.ended.reason
    assert isinstance(judged(1, node_loss=LOST_NODE, log_end=NO_STEP), Abandon)


def test_nodes_that_an_allocation_no_longer_has_have_failed() -> None:
    room = RunningAllocation(job_id="7", nodes=("n01", "n03"), ends_at=None, asked_at=10.0)
    assert node_loss_in(room, ["n01", "n02"], since=10.0) is None, "not asked since"
    found = node_loss_in(room, ["n01", "n02"], since=9.0)
    assert found is not None
    assert (found.status, found.failed_nodes) == (TrialState.NODE_FAIL, frozenset({"n02"}))
    assert node_loss_in(room, ["n01"], since=9.0) == NO_LOSS


def test_a_trial_fits_when_its_nodes_and_its_time_do() -> None:
    (trial,) = asked(Path("trials"), 2, time_limit_s=100.0)
    room = RunningAllocation(job_id="7", nodes=("n01", "n02"), ends_at=1000.0, asked_at=0.0)
    latest = 1000.0 - longest_s(trial)
    assert why_unfit(trial, room, room.nodes, now=latest) == ""
    assert "beyond the end" in why_unfit(trial, room, room.nodes, now=latest + 1)
    assert "2 nodes, and 1" in why_unfit(trial, room, room.nodes[:1], now=latest)


def test_what_is_not_refused_fits_in_a_new_allocation_for_a_while() -> None:
    pilot = Pilot(nodes=2, time_limit_h=1.0)
    (trial,) = asked(Path("trials"), 2, time_limit_s=3516.0)
    assert "too long" in why_refused(trial, pilot)
    (trial,) = asked(Path("trials"), 2, time_limit_s=3515.0)
    assert why_refused(trial, pilot) == ""
    room = RunningAllocation(job_id="7", nodes=("n01", "n02"), ends_at=3600.0, asked_at=0.0)
    assert why_unfit(trial, room, room.nodes, now=60.0) == ""
