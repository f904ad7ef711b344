"""Who is to blame for the end of a step: by what srun says in the log, and what its nodes do."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from autotune.schemas.choices import TrialState
from evaluators.program import AttemptEnd
from evaluators.slurm.attempt_files import AttemptFiles, Claim, ScriptEnd
from evaluators.slurm.job_decision import (
    NO_LOSS,
    AbandonAttempt,
    EndAttempt,
    Ended,
    NodeLoss,
    RefusedStep,
    blame_slurm,
    decide_step,
    failed_nodes,
    why_never_launched,
    why_no_step,
)

AWAY = "srun: error: Unable to contact slurm controller (connect failure)\n"
BUSY = "srun: error: Unable to create step for job 7: Memory required by task is not available\n"
SILENT = "srun: error: Unable to confirm allocation for job 7: Unable to contact slurm controller\n"
UNKNOWN = (
    "srun: error: Unable to confirm allocation for job 999999: Invalid job id specified\n"
    "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 999999\n"
)
NODE_FAILED = "srun: error: Node failure on n03\n"
LAUNCH_FAILED = (
    "srun: error: Task launch for StepId=1.1 failed on node n05: Communication failure\n"
)
KILLED_FOR_MEMORY = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been"
    " OOM Killed.\n"
    "srun: error: n01: task 0: Out Of Memory\n"
)
CREATED = (
    "srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)\n"
    "srun: Step created for job 7\n"
)
NEVER_LAUNCHED = (
    "srun: error: timeout waiting for task launch, started 0 of 4 tasks\n"
    "srun: StepId=7.0 aborted before step completely launched.\n"
    "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
    "slurmstepd: error: *** STEP 7.0 ON n01 CANCELLED AT 2026-01-01T00:00:00 ***\n"
    "srun: error: Timed out waiting for job step to complete\n"
)
TRACEBACK = "Traceback (most recent call last):\nRuntimeError: Node failure on n05\n"
CRASHED = f"{TRACEBACK}srun: error: n[01-02]: tasks 0-1: Exited with exit code 1\n"


def judged(
    log_end: str,
    exit_code: int | None = 1,
    *,
    status: TrialState | None = None,
    cancelled: bool = False,
) -> Ended:
    ended = AttemptEnd(
        status=status,
        reason="as Slurm says" if status else "",
        exit_code=exit_code,
        started_at=datetime.now(UTC),
        duration_s=1.0,
    )
    decision = EndAttempt(end=ended)
    blamed = blame_slurm(decision, log_end, cancelled=cancelled)
    assert blamed == decision or not isinstance(blamed, EndAttempt) or cancelled
    return blamed


@pytest.mark.parametrize("code", [0, 1, 137, None])
@pytest.mark.parametrize("after", ["", TRACEBACK, CRASHED, BUSY, "iteration 3\n" * 40])
def test_a_failed_node_is_to_blame_whatever_else_was_printed(code: int | None, after: str) -> None:
    decision = judged(f"iteration 2\n{NODE_FAILED}{after}", code)
    assert isinstance(decision, AbandonAttempt)
    assert (decision.end.status, decision.end.exit_code) == (TrialState.NODE_FAIL, code)


def test_every_failed_node_is_named() -> None:
    assert failed_nodes(f"{NODE_FAILED}iteration 2\n{LAUNCH_FAILED}") == {"n03", "n05"}
    assert failed_nodes(CRASHED) == frozenset()


@pytest.mark.parametrize(
    ("log_end", "refusal"),
    [
        (AWAY, "Unable to contact slurm controller"),
        (SILENT, "Unable to contact slurm controller"),
        (UNKNOWN, "Invalid job id specified"),
        (f"loading a module\n{AWAY}\n{BUSY}\n", "Memory required by task is not available"),
    ],
)
def test_a_step_that_was_never_made_is_requested_again(log_end: str, refusal: str) -> None:
    decision = judged(log_end)
    assert isinstance(decision, RefusedStep)
    assert decision.end.status is TrialState.LOST
    assert decision.end.reason == f"Slurm did not start its step: {refusal}"


@pytest.mark.parametrize(
    "after", [CREATED, CRASHED, KILLED_FOR_MEMORY, TRACEBACK, f"iteration 1\n{KILLED_FOR_MEMORY}"]
)
def test_a_step_that_ran_after_all_fails_for_its_own_reason(after: str) -> None:
    assert isinstance(judged(f"{AWAY}{after}"), EndAttempt)
    assert why_no_step(f"{AWAY}{after}") == ""


@pytest.mark.parametrize("code", [0, 1])
def test_a_step_without_a_started_task_is_requested_again(code: int) -> None:
    for log_end in (
        NEVER_LAUNCHED,
        f"loading a module\n{NEVER_LAUNCHED}",
        CRASHED + NEVER_LAUNCHED,
    ):
        decision = judged(log_end, code)
        assert isinstance(decision, RefusedStep)
        assert decision.end.reason.endswith("waiting for task launch, started 0 of 4 tasks")
    assert isinstance(decided(code, log_end=NEVER_LAUNCHED), RefusedStep)


@pytest.mark.parametrize("after", [CRASHED, TRACEBACK, "iteration 1\n"])
def test_a_trial_that_goes_on_after_it_fails_for_its_own_reason(after: str) -> None:
    assert isinstance(judged(f"{NEVER_LAUNCHED}{after}"), EndAttempt)
    assert why_never_launched(f"{NEVER_LAUNCHED}{after}") == ""


def test_a_controller_away_after_a_step_ended_is_not_to_blame() -> None:
    assert isinstance(judged(f"{CRASHED}{AWAY}"), EndAttempt)


def test_only_a_failure_is_blamed_on_a_step_that_was_never_made() -> None:
    for code in (0, None):
        assert isinstance(judged(AWAY, code), EndAttempt)


@pytest.mark.parametrize("log_end", ["", "iteration 4\n", CRASHED, KILLED_FOR_MEMORY])
def test_a_trial_is_judged_if_srun_reports_no_node_or_busy_error(log_end: str) -> None:
    for code in (0, 1, None):
        assert isinstance(judged(log_end, code), EndAttempt)


@pytest.mark.parametrize("log_end", [NODE_FAILED, BUSY, NODE_FAILED + BUSY])
def test_what_is_decided_stays_so(log_end: str) -> None:
    for status in (TrialState.TIMEOUT, TrialState.CANCELLED, TrialState.OOM):
        decision = judged(log_end, 124, status=status)
        assert isinstance(decision, EndAttempt)
        assert (decision.end.status, decision.end.reason) == (status, "as Slurm says")


@pytest.mark.parametrize("log_end", [NODE_FAILED, BUSY])
def test_a_cancelled_trial_is_not_tried_again(log_end: str) -> None:
    decision = judged(log_end, cancelled=True)
    assert isinstance(decision, EndAttempt)
    assert (decision.end.status, decision.end.reason) == (TrialState.CANCELLED, "cancelled")


CLAIM = Claim(job_id="7", at=1000.0, nodes="n01,n02")
LOST_NODE = NodeLoss(status=TrialState.NODE_FAIL, reason="one of its nodes failed")
SECOND_NODE_FAILED = "srun: error: Node failure on n02\n"


def decided(
    exit_code: int | None,
    *,
    took_s: float = 5.0,
    loss: NodeLoss = NO_LOSS,
    log_end: str = "",
    cancelled: bool = False,
    claimed: bool = True,
) -> Ended:
    end = None
    if exit_code is not None:
        end = ScriptEnd(exit_code=exit_code, began_at=1000.0, ended_at=1000.0 + took_s)
    claim = CLAIM if claimed else None
    return decide_step(
        AttemptFiles(intended_at=999.0, claimed=claimed, claim=claim, end=end),
        job_id="7",
        nodes=("n01", "n02"),
        loss=loss,
        log_end=log_end,
        time_limit_s=60.0,
        ended_at=1000.0 + took_s,
        cancelled=cancelled,
    )


def test_a_trial_that_ended_by_itself_is_judged_by_its_program() -> None:
    for code in (0, 1, 143):
        decision = decided(code)
        assert isinstance(decision, EndAttempt)
        end = decision.end
        assert (end.status, end.exit_code, end.duration_s) == (None, code, 5.0)
        assert (end.host, end.job_id) == ("n01,n02", "7")


def test_what_ended_well_is_not_doubted() -> None:
    assert isinstance(decided(0, loss=LOST_NODE), EndAttempt)
    assert isinstance(decided(0, loss=LOST_NODE, log_end=BUSY), EndAttempt)


@pytest.mark.parametrize("code", [1, 137, None])
def test_a_failed_node_is_not_the_trials_fault(code: int | None) -> None:
    for decision in (decided(code, loss=LOST_NODE), decided(code, log_end=SECOND_NODE_FAILED)):
        assert isinstance(decision, AbandonAttempt)
        assert decision.end.status is TrialState.NODE_FAIL


@pytest.mark.parametrize("loss", [NO_LOSS, LOST_NODE])
def test_an_srun_that_lost_its_node_is_not_believed_to_end_well(loss: NodeLoss) -> None:
    decision = decided(0, loss=loss, log_end=SECOND_NODE_FAILED)
    assert isinstance(decision, AbandonAttempt)
    assert decision.end.status is TrialState.NODE_FAIL
    cancelled = decided(0, loss=loss, log_end=SECOND_NODE_FAILED, cancelled=True)
    assert isinstance(cancelled, EndAttempt)
    assert cancelled.end.status is TrialState.CANCELLED


def test_a_time_limit_holds_whatever_else_happened() -> None:
    for code in (124, 137):
        assert decided(code, took_s=60.5, loss=LOST_NODE).end.status is TrialState.TIMEOUT


def test_a_killed_script_is_started_again_with_its_time_counted() -> None:
    decision = decided(None)
    assert isinstance(decision, AbandonAttempt)
    assert (decision.end.status, decision.end.duration_s) == (TrialState.LOST, 5.0)


def test_a_script_that_never_began_held_no_nodes() -> None:
    decision = decided(None, claimed=False)
    assert isinstance(decision, AbandonAttempt)
    assert decision.end.duration_s == 0.0


@pytest.mark.parametrize("claimed", [True, False])
@pytest.mark.parametrize("loss", [NO_LOSS, LOST_NODE])
def test_a_cancelled_trial_is_never_started_again(claimed: bool, loss: NodeLoss) -> None:
    decision = decided(None, claimed=claimed, loss=loss, cancelled=True)
    assert isinstance(decision, EndAttempt)
    assert decision.end.status is TrialState.CANCELLED


def test_a_step_that_slurm_did_not_make_is_tried_again() -> None:
    decision = decided(1, log_end=BUSY)
    assert isinstance(decision, RefusedStep)
    assert "Memory required by task is not available" in decision.end.reason
    assert isinstance(decided(1, loss=LOST_NODE, log_end=BUSY), AbandonAttempt)
