"""Who is to blame for an attempt's end, by what srun says in its log."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from autotune.schemas import TrialState
from evaluators.program import AttemptEnd
from evaluators.slurm.judgement import Retry
from evaluators.slurm.step_errors import NoStep, failed_nodes, judge_step, why_no_step

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
TRACEBACK = "Traceback (most recent call last):\nRuntimeError: Node failure on n05\n"
CRASHED = f"{TRACEBACK}srun: error: n[01-02]: tasks 0-1: Exited with exit code 1\n"


def judged(
    log_end: str,
    exit_code: int | None = 1,
    *,
    status: TrialState | None = None,
    cancelled: bool = False,
) -> AttemptEnd | Retry | NoStep:
    ended = AttemptEnd(
        status=status,
        reason="as Slurm says" if status else "",
        exit_code=exit_code,
        started_at=datetime.now(UTC),
        duration_s=1.0,
    )
    found = judge_step(ended, log_end, cancelled=cancelled)
    assert found == ended or not isinstance(found, AttemptEnd) or cancelled
    return found


@pytest.mark.parametrize("code", [0, 1, 137, None])
@pytest.mark.parametrize("after", ["", TRACEBACK, CRASHED, BUSY, "iteration 3\n" * 40])
def test_a_failed_node_is_to_blame_whatever_else_was_said(code: int | None, after: str) -> None:
    found = judged(f"iteration 2\n{NODE_FAILED}{after}", code)
    assert isinstance(found, Retry)
    assert (found.ended.status, found.ended.exit_code) == (TrialState.NODE_FAIL, code)


def test_every_failed_node_is_named() -> None:
    assert failed_nodes(f"{NODE_FAILED}iteration 2\n{LAUNCH_FAILED}") == {"n03", "n05"}
    assert failed_nodes(CRASHED) == frozenset()


@pytest.mark.parametrize(
    ("log_end", "said"),
    [
        (AWAY, "Unable to contact slurm controller"),
        (SILENT, "Unable to contact slurm controller"),
        (UNKNOWN, "Invalid job id specified"),
        (f"loading a module\n{AWAY}\n{BUSY}\n", "Memory required by task is not available"),
    ],
)
def test_a_step_that_was_never_made_is_asked_for_again(log_end: str, said: str) -> None:
    found = judged(log_end)
    assert isinstance(found, NoStep)
    assert found.ended.status is TrialState.LOST
    assert found.ended.reason == f"Slurm did not start its step: {said}"


@pytest.mark.parametrize(
    "after", [CREATED, CRASHED, KILLED_FOR_MEMORY, TRACEBACK, f"iteration 1\n{KILLED_FOR_MEMORY}"]
)
def test_a_step_that_ran_after_all_fails_for_its_own_reason(after: str) -> None:
    assert isinstance(judged(f"{AWAY}{after}"), AttemptEnd)
    assert why_no_step(f"{AWAY}{after}") == ""


def test_a_controller_that_is_away_when_a_step_has_ended_is_not_to_blame() -> None:
    assert isinstance(judged(f"{CRASHED}{AWAY}"), AttemptEnd)


def test_only_a_failure_is_blamed_on_a_step_that_was_never_made() -> None:
    for code in (0, None):
        assert isinstance(judged(AWAY, code), AttemptEnd)


@pytest.mark.parametrize("log_end", ["", "iteration 4\n", CRASHED, KILLED_FOR_MEMORY])
def test_where_srun_complains_about_nothing_of_the_kind_the_trial_is_judged(log_end: str) -> None:
    for code in (0, 1, None):
        assert isinstance(judged(log_end, code), AttemptEnd)


@pytest.mark.parametrize("log_end", [NODE_FAILED, BUSY, NODE_FAILED + BUSY])
def test_what_is_decided_stays_so(log_end: str) -> None:
    for status in (TrialState.TIMEOUT, TrialState.CANCELLED, TrialState.OOM):
        found = judged(log_end, 124, status=status)
        assert isinstance(found, AttemptEnd)
        assert (found.status, found.reason) == (status, "as Slurm says")


@pytest.mark.parametrize("log_end", [NODE_FAILED, BUSY])
def test_a_cancelled_trial_is_not_tried_again(log_end: str) -> None:
    found = judged(log_end, cancelled=True)
    assert isinstance(found, AttemptEnd)
    assert (found.status, found.reason) == (TrialState.CANCELLED, "cancelled")
