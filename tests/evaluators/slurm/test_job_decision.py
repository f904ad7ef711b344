"""Every way in which an attempt can stand or end, without a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evaluators.attempt import AttemptState, transition
from evaluators.cluster.profile import Polling
from evaluators.slurm.attempt_files import AttemptFiles, Claim, ScriptEnd
from evaluators.slurm.commands import SlurmJob
from evaluators.slurm.job_decision import (
    FOLDER_NOT_SHARED,
    AbandonAttempt,
    Decision,
    EndAttempt,
    JobStatus,
    RefusedStep,
    Stay,
    decide,
)

NOW = 10_000.0
LIMIT_S = 100.0
SETTLE_S = Polling().settle_s

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
        queried_at=NOW - 1,
        absent_since=None if quiet_s is None else NOW - quiet_s,
        accounted=accounted,
    )


UNKNOWN = JobStatus(now=NOW)


def decided(files: AttemptFiles, seen: JobStatus, **others: Any) -> str:
    """In one word and, where there is one, its status or reason."""
    known = {"begun_by": NOW - 40} | others
    return in_a_word(decide(files, seen, time_limit_s=LIMIT_S, **known))


def in_a_word(decision: Decision) -> str:
    match decision:
        case Stay(ask_accounting=True):
            return "ask accounting"
        case Stay(state=state, reason=reason):
            return f"{state}: {reason}" if reason else state
        case EndAttempt(end=end):
            return f"ended: {end.status or 'as its files say'}"
        case AbandonAttempt(end=end) | RefusedStep(end=end):
            return f"abandoned: {end.status}"
    return "submit again"


PENDING = job("PENDING", reason="Priority", started_at=None, ended_at=None, nodes="")
RUNNING = job("RUNNING", ended_at=None)
DOWN = frozenset({"n02"})


CASES = [
    # before it began
    (NOTHING, UNKNOWN, "submitting: being submitted to Slurm"),
    (NOTHING, status(PENDING), "pending: behind jobs of higher priority (Priority)"),
    (NOTHING, status(RUNNING), "running"),
    (NOTHING, status(accounted=False), "ask accounting"),
    (NOTHING, status(), "submit again"),
    (replace(NOTHING, intended_at=NOW - 2), status(), "submitting: being submitted to Slurm"),
    (NOTHING, status(job("NODE_FAIL")), "abandoned: node_fail"),
    (NOTHING, status(job("BOOT_FAIL")), "abandoned: node_fail"),
    (NOTHING, status(job("PREEMPTED")), "abandoned: preempted"),
    (NOTHING, status(job("CANCELLED")), "abandoned: cancelled"),
    (NOTHING, status(job("CANCELLED"), accounted=False), "ask accounting"),
    (NOTHING, status(job("FAILED")), "ended: crashed"),
    (NOTHING, status(job("FAILED"), quiet_s=1), "completing"),
    (NOTHING, status(job("COMPLETED")), "ended: crashed"),
    (NOTHING, status(job("TIMEOUT")), "ended: timeout"),
    (
        NOTHING,
        status(job("FAILED"), job("PENDING", "8", reason="None")),
        "pending: not yet looked at by Slurm (None)",
    ),
    # while it runs
    (BEGUN, UNKNOWN, "running"),
    (BEGUN, status(RUNNING), "running"),
    (BEGUN, status(job("COMPLETING")), "completing"),
    (BEGUN, status(job("SUSPENDED")), "pending: suspended (SUSPENDED)"),
    (BY_WHOM, status(RUNNING), "running"),
    # its job has gone
    (BEGUN, status(quiet_s=1), "completing"),
    (BEGUN, status(accounted=False), "ask accounting"),
    (BEGUN, status(), "abandoned: lost"),
    (BY_WHOM, status(), "abandoned: lost"),
    (BEGUN, status(job("RUNNING", "9"), quiet_s=None), "running"),
    (BEGUN, status(job("COMPLETED", "9")), "abandoned: lost"),
    # its job ended, and did not say how
    (BEGUN, status(job("NODE_FAIL")), "abandoned: node_fail"),
    (BEGUN, status(job("PREEMPTED")), "abandoned: preempted"),
    (BEGUN, status(job("PENDING", reason="BeginTime")), "abandoned: preempted"),
    (BEGUN, status(job("CANCELLED")), "abandoned: cancelled"),
    (BEGUN, status(job("TIMEOUT")), "ended: timeout"),
    (BEGUN, status(job("DEADLINE")), "ended: timeout"),
    (BEGUN, status(job("OUT_OF_MEMORY")), "ended: oom"),
    (BEGUN, status(job("FAILED"), quiet_s=1), "completing"),
    (BEGUN, status(job("FAILED")), "ended: as its files say"),
    (BEGUN, status(job("COMPLETED")), "abandoned: lost"),
    # it said how it ended
    (ended(0), UNKNOWN, "ended: as its files say"),
    (ended(0), status(RUNNING), "ended: as its files say"),
    (ended(0), status(job("NODE_FAIL")), "ended: as its files say"),
    (ended(124, duration_s=100), UNKNOWN, "ended: timeout"),
    (ended(137, duration_s=115), UNKNOWN, "ended: timeout"),
    (ended(124), status(job("FAILED")), "ended: as its files say"),
    (ended(137), status(job("FAILED")), "ended: as its files say"),
    (ended(1), UNKNOWN, "completing"),
    (ended(1), status(RUNNING), "completing"),
    (ended(1), status(job("COMPLETING")), "completing"),
    (ended(1), status(), "ended: as its files say"),
    (ended(1), status(job("FAILED")), "ended: as its files say"),
    (ended(1), status(job("OUT_OF_MEMORY")), "ended: oom"),
    (ended(143), status(job("NODE_FAIL")), "abandoned: node_fail"),
    (ended(143), status(job("PREEMPTED")), "abandoned: preempted"),
    (ended(143), status(job("CANCELLED")), "abandoned: cancelled"),
    # the queue has forgotten its job: by the nodes, by accounting, and at last by its files
    (ended(1), status(quiet_s=1), "completing"),
    (ended(1), status(accounted=False), "ask accounting"),
    (ended(1), replace(status(), accounting=True), "ask accounting"),
    (ended(1), replace(status(quiet_s=59), accounting=True), "ask accounting"),
    (ended(1), replace(status(quiet_s=60), accounting=True), "ended: as its files say"),
    (ended(1), status(quiet_s=60, accounted=False), "ended: as its files say"),
    (ended(1), replace(status(accounted=False), failed_nodes=DOWN), "abandoned: node_fail"),
    (ended(0), replace(status(), failed_nodes=DOWN), "ended: as its files say"),
    (BEGUN, replace(status(), accounting=True), "ask accounting"),
    (BEGUN, replace(status(quiet_s=60), accounting=True), "abandoned: lost"),
    (BEGUN, replace(status(accounted=False), failed_nodes=DOWN), "abandoned: node_fail"),
]


@pytest.mark.parametrize(("files", "seen", "expected"), CASES)
def test_what_becomes_of_an_attempt(files: AttemptFiles, seen: JobStatus, expected: str) -> None:
    assert decided(files, seen) == expected


def test_whatever_is_seen_next_an_attempt_may_become_it() -> None:
    """Slurm may forget and repeat what it likes; what lies in the folder only grows."""
    for files, seen, _ in CASES:
        before = decide(files, seen, time_limit_s=LIMIT_S, begun_by=NOW - 40).state
        for later, seen_later, _ in CASES:
            grown = later.claimed >= files.claimed and bool(later.end) >= bool(files.end)
            if grown and before not in {AttemptState.ENDED, AttemptState.ABANDONED}:
                after = decide(later, seen_later, time_limit_s=LIMIT_S, begun_by=NOW - 40).state
                assert transition(before, after) is after


@pytest.mark.parametrize(
    ("files", "seen", "expected"),
    [
        (NOTHING, UNKNOWN, "submitting: being submitted to Slurm"),
        (NOTHING, status(RUNNING), "running"),
        (NOTHING, status(accounted=False), "ended: cancelled"),
        (NOTHING, status(job("CANCELLED"), accounted=False), "ended: cancelled"),
        (BEGUN, status(RUNNING), "running"),
        (BEGUN, status(quiet_s=1), "ended: cancelled"),
        (BEGUN, status(job("CANCELLED")), "ended: cancelled"),
        (BEGUN, status(job("NODE_FAIL")), "ended: cancelled"),
        (BEGUN, status(job("COMPLETED")), "ended: cancelled"),
        (BEGUN, status(job("PENDING", reason="BeginTime")), "ended: cancelled"),
        (ended(143), UNKNOWN, "ended: cancelled"),
        (ended(0), UNKNOWN, "ended: as its files say"),
    ],
)
def test_what_becomes_of_an_attempt_that_we_end(
    files: AttemptFiles, seen: JobStatus, expected: str
) -> None:
    assert decided(files, seen, cancelled=True) == expected


def test_a_status_call_from_before_a_job_began_shows_no_requeue() -> None:
    shown = status(job("PENDING", reason="None"))
    assert decided(BEGUN, shown, begun_by=NOW - 0.5) == "running"
    assert decided(BEGUN, shown, begun_by=NOW - 5) == "abandoned: preempted"


def test_a_job_is_waited_for_from_when_sbatch_ended() -> None:
    """Not from the intent alone: the client may have hung for long before it sent anything."""
    assert (
        decided(NOTHING, status(), submitted_at=NOW - 2) == "submitting: being submitted to Slurm"
    )


def test_the_error_names_who_cancelled_it_if_accounting_knows() -> None:
    by_hand = job("CANCELLED", cancelled_by=1234)
    decision = decide(BEGUN, status(by_hand, accounted=False), time_limit_s=LIMIT_S)
    assert isinstance(decision, AbandonAttempt)
    assert decision.end.reason == "its job was cancelled by user 1234, not by this campaign"


def test_a_folder_unseen_by_the_nodes_is_named_as_the_cause() -> None:
    decision = decide(NOTHING, status(job("FAILED", exit_code=66)), time_limit_s=LIMIT_S)
    assert isinstance(decision, EndAttempt)
    assert decision.end.reason == FOLDER_NOT_SHARED
    assert decision.end.duration_s == 40


def test_the_nodes_and_the_time_are_of_the_job_that_began() -> None:
    seen = status(job("FAILED", "6", nodes="n09"), job("FAILED", "7"))
    decision = decide(ended(3), seen, time_limit_s=LIMIT_S)
    assert isinstance(decision, EndAttempt)
    assert (decision.end.host, decision.end.job_id, decision.end.exit_code) == ("n[01-02]", "7", 3)
    assert decision.end.duration_s == 20
    assert decision.end.started_at.timestamp() == NOW - 50


def test_a_lost_job_held_its_nodes_no_longer_than_its_limit() -> None:
    long_ago = replace(BEGUN, claim=replace(CLAIM, at=NOW - 5000))
    decision = decide(long_ago, status(), time_limit_s=LIMIT_S)
    assert isinstance(decision, AbandonAttempt)
    assert decision.end.duration_s == LIMIT_S


def test_while_accounting_is_queried_the_trial_stands_as_before() -> None:
    decision = decide(BEGUN, status(accounted=False), time_limit_s=LIMIT_S)
    assert isinstance(decision, Stay)
    assert decision.ask_accounting
    assert decision.state is AttemptState.COMPLETING
    assert decision.host == "n[01-02]"
