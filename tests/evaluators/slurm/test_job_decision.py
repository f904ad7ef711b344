"""Every way in which an attempt can stand or end, without a cluster."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from autotune.schemas import TrialState
from evaluators.program import AttemptEnd
from evaluators.slurm.attempt_files import AttemptFiles, Claim, ScriptEnd
from evaluators.slurm.job_decision import (
    FOLDER_NOT_SHARED,
    SETTLE_S,
    Abandon,
    AskAccounting,
    Decision,
    JobStatus,
    StepRefused,
    SubmitAgain,
    decide_step,
    failed_nodes,
    judge,
    why_no_step,
)
from evaluators.slurm.jobs import SlurmJob
from evaluators.trial import TrialProgress

NOW = 10_000.0
LIMIT_S = 100.0

NOTHING = AttemptFiles(intended_at=NOW - 60, job_id="7")
CLAIM = Claim(job_id="7", at=NOW - 50, nodes="n[01-02]")
BEGUN = replace(NOTHING, claimed=True, claim=CLAIM)
BY_WHOM = replace(NOTHING, claimed=True)


def ended(code: int, *, duration_s: float = 20.0) -> AttemptFiles:
    end = ScriptEnd(exit_code=code, began_at=NOW - 50, ended_at=NOW - 50 + duration_s)
    return replace(BEGUN, end=end)


def job(state: str, job_id: str = "7", **others: Any) -> SlurmJob:
    known: dict[str, Any] = {
        "submitted_at": NOW - 60,
        "started_at": NOW - 50,
        "ended_at": NOW - 10,
        "nodes": "n[01-02]",
    }
    return SlurmJob(id=job_id, name="t.1", state=state, **(known | others))


def status(*jobs: SlurmJob, quiet_s: float | None = None, accounted: bool = True) -> JobStatus:
    """`quiet_s`: since when no job of the name has been seen alive."""
    if quiet_s is None and not any(not each.finished for each in jobs):
        quiet_s = SETTLE_S
    return JobStatus(
        now=NOW,
        jobs=jobs,
        asked_at=NOW - 1,
        absent_since=None if quiet_s is None else NOW - quiet_s,
        accounted=accounted,
    )


UNASKED = JobStatus(now=NOW)


def decided(evidence: AttemptFiles, seen: JobStatus, **others: Any) -> str:
    """In one word and, where there is one, its status or reason."""
    known = {"begun_by": NOW - 40} | others
    return told(judge(evidence, seen, time_limit_s=LIMIT_S, **known))


def told(found: Decision) -> str:
    if isinstance(found, TrialProgress):
        return f"{found.phase}: {found.reason}" if found.reason else found.phase
    if isinstance(found, Abandon):
        return f"again: {found.ended.status}"
    if isinstance(found, AttemptEnd):
        return f"ended: {found.status or 'as its files say'}"
    return "submit again" if isinstance(found, SubmitAgain) else "look up"


PENDING = job("PENDING", reason="Priority", started_at=None, ended_at=None, nodes="")
RUNNING = job("RUNNING", ended_at=None)


@pytest.mark.parametrize(
    ("evidence", "seen", "expected"),
    [
        # before it began
        (NOTHING, UNASKED, "waiting: being submitted to Slurm"),
        (NOTHING, status(PENDING), "waiting: behind jobs of higher priority (Priority)"),
        (NOTHING, status(RUNNING), "running"),
        (NOTHING, status(accounted=False), "look up"),
        (NOTHING, status(), "submit again"),
        (replace(NOTHING, intended_at=NOW - 2), status(), "waiting: being submitted to Slurm"),
        (NOTHING, status(job("NODE_FAIL")), "again: node_fail"),
        (NOTHING, status(job("BOOT_FAIL")), "again: node_fail"),
        (NOTHING, status(job("PREEMPTED")), "again: preempted"),
        (NOTHING, status(job("CANCELLED")), "ended: cancelled"),
        (NOTHING, status(job("CANCELLED"), accounted=False), "look up"),
        (NOTHING, status(job("FAILED")), "ended: crashed"),
        (NOTHING, status(job("FAILED"), quiet_s=1), "running"),
        (NOTHING, status(job("COMPLETED")), "ended: crashed"),
        (NOTHING, status(job("TIMEOUT")), "ended: timeout"),
        (
            NOTHING,
            status(job("FAILED"), job("PENDING", "8", reason="None")),
            "waiting: not yet looked at by Slurm (None)",
        ),
        # while it runs
        (BEGUN, UNASKED, "running"),
        (BEGUN, status(RUNNING), "running"),
        (BEGUN, status(job("COMPLETING")), "running"),
        (BEGUN, status(job("SUSPENDED")), "waiting: suspended (SUSPENDED)"),
        (BY_WHOM, status(RUNNING), "running"),
        # its job has gone
        (BEGUN, status(quiet_s=1), "running"),
        (BEGUN, status(accounted=False), "look up"),
        (BEGUN, status(), "again: lost"),
        (BY_WHOM, status(), "again: lost"),
        (BEGUN, status(job("RUNNING", "9"), quiet_s=None), "running"),
        (BEGUN, status(job("COMPLETED", "9")), "again: lost"),
        # its job ended, and did not say how
        (BEGUN, status(job("NODE_FAIL")), "again: node_fail"),
        (BEGUN, status(job("PREEMPTED")), "again: preempted"),
        (BEGUN, status(job("PENDING", reason="BeginTime")), "again: preempted"),
        (BEGUN, status(job("CANCELLED")), "ended: cancelled"),
        (BEGUN, status(job("TIMEOUT")), "ended: timeout"),
        (BEGUN, status(job("DEADLINE")), "ended: timeout"),
        (BEGUN, status(job("OUT_OF_MEMORY")), "ended: oom"),
        (BEGUN, status(job("FAILED"), quiet_s=1), "running"),
        (BEGUN, status(job("FAILED")), "ended: as its files say"),
        (BEGUN, status(job("COMPLETED")), "again: lost"),
        # it said how it ended
        (ended(0), UNASKED, "ended: as its files say"),
        (ended(0), status(RUNNING), "ended: as its files say"),
        (ended(0), status(job("NODE_FAIL")), "ended: as its files say"),
        (ended(124, duration_s=100), UNASKED, "ended: timeout"),
        (ended(137, duration_s=115), UNASKED, "ended: timeout"),
        (ended(124), status(job("FAILED")), "ended: as its files say"),
        (ended(137), status(job("FAILED")), "ended: as its files say"),
        (ended(1), UNASKED, "running"),
        (ended(1), status(RUNNING), "running"),
        (ended(1), status(job("COMPLETING")), "running"),
        (ended(1), status(), "ended: as its files say"),
        (ended(1), status(job("FAILED")), "ended: as its files say"),
        (ended(1), status(job("OUT_OF_MEMORY")), "ended: oom"),
        (ended(143), status(job("NODE_FAIL")), "again: node_fail"),
        (ended(143), status(job("PREEMPTED")), "again: preempted"),
        (ended(143), status(job("CANCELLED")), "ended: cancelled"),
    ],
)
def test_what_becomes_of_an_attempt(evidence: AttemptFiles, seen: JobStatus, expected: str) -> None:
    assert decided(evidence, seen) == expected


@pytest.mark.parametrize(
    ("evidence", "seen", "expected"),
    [
        (NOTHING, UNASKED, "waiting: being submitted to Slurm"),
        (NOTHING, status(RUNNING), "running"),
        (NOTHING, status(accounted=False), "ended: cancelled"),
        (NOTHING, status(job("CANCELLED"), accounted=False), "ended: cancelled"),
        (BEGUN, status(RUNNING), "running"),
        (BEGUN, status(quiet_s=1), "ended: cancelled"),
        (BEGUN, status(job("CANCELLED")), "ended: cancelled"),
        (BEGUN, status(job("NODE_FAIL")), "ended: cancelled"),
        (BEGUN, status(job("COMPLETED")), "ended: cancelled"),
        (BEGUN, status(job("PENDING", reason="BeginTime")), "ended: cancelled"),
        (ended(143), UNASKED, "ended: cancelled"),
        (ended(0), UNASKED, "ended: as its files say"),
    ],
)
def test_what_becomes_of_an_attempt_that_we_end(
    evidence: AttemptFiles, seen: JobStatus, expected: str
) -> None:
    assert decided(evidence, seen, cancelled=True) == expected


def test_a_status_call_from_before_it_began_does_not_show_it_put_back() -> None:
    shown = status(job("PENDING", reason="None"))
    assert decided(BEGUN, shown, begun_by=NOW - 0.5) == "running"
    assert decided(BEGUN, shown, begun_by=NOW - 5) == "again: preempted"


def test_a_job_is_waited_for_from_when_sbatch_ended() -> None:
    """Not from the intent alone: the client may have hung for long before it sent anything."""
    assert decided(NOTHING, status(), submitted_at=NOW - 2) == "waiting: being submitted to Slurm"


def test_who_cancelled_it_is_said_where_accounting_knows() -> None:
    by_hand = job("CANCELLED", cancelled_by=1234)
    found = judge(BEGUN, status(by_hand, accounted=False), time_limit_s=LIMIT_S)
    assert isinstance(found, AttemptEnd)
    assert found.reason == "its job was cancelled by user 1234, and not by this campaign"


def test_a_folder_that_the_nodes_cannot_see_is_named_as_the_cause() -> None:
    found = judge(NOTHING, status(job("FAILED", exit_code=66)), time_limit_s=LIMIT_S)
    assert isinstance(found, AttemptEnd)
    assert found.reason == FOLDER_NOT_SHARED
    assert found.duration_s == 40


def test_the_nodes_and_the_time_are_of_the_job_that_began() -> None:
    seen = status(job("FAILED", "6", nodes="n09"), job("FAILED", "7"))
    found = judge(ended(3), seen, time_limit_s=LIMIT_S)
    assert isinstance(found, AttemptEnd)
    assert (found.host, found.job_id, found.exit_code) == ("n[01-02]", "7", 3)
    assert found.duration_s == 20
    assert found.started_at.timestamp() == NOW - 50


def test_a_lost_job_held_its_nodes_no_longer_than_its_limit() -> None:
    long_ago = replace(BEGUN, claim=replace(CLAIM, at=NOW - 5000))
    found = judge(long_ago, status(), time_limit_s=LIMIT_S)
    assert isinstance(found, Abandon)
    assert found.ended.duration_s == LIMIT_S


def test_while_accounting_is_asked_the_trial_stands_as_before() -> None:
    found = judge(BEGUN, status(accounted=False), time_limit_s=LIMIT_S)
    assert isinstance(found, AskAccounting)
    assert found.standing.phase == "running"
    assert found.standing.host == "n[01-02]"


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
    "srun: SlurmJob 7 step creation temporarily disabled, retrying (Requested nodes are busy)\n"
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
) -> AttemptEnd | Abandon | StepRefused:
    ended = AttemptEnd(
        status=status,
        reason="as Slurm says" if status else "",
        exit_code=exit_code,
        started_at=datetime.now(UTC),
        duration_s=1.0,
    )
    found = decide_step(ended, log_end, cancelled=cancelled)
    assert found == ended or not isinstance(found, AttemptEnd) or cancelled
    return found


@pytest.mark.parametrize("code", [0, 1, 137, None])
@pytest.mark.parametrize("after", ["", TRACEBACK, CRASHED, BUSY, "iteration 3\n" * 40])
def test_a_failed_node_is_to_blame_whatever_else_was_said(code: int | None, after: str) -> None:
    found = judged(f"iteration 2\n{NODE_FAILED}{after}", code)
    assert isinstance(found, Abandon)
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
    assert isinstance(found, StepRefused)
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
