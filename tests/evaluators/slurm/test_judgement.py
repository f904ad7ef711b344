"""Every way in which an attempt can stand or end, without a cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from evaluators.program import AttemptEnd
from evaluators.slurm.evidence import Claim, End, Evidence
from evaluators.slurm.job import Job
from evaluators.slurm.judgement import (
    FOLDER_NOT_SHARED,
    SETTLE_S,
    LookUp,
    Retry,
    Sight,
    SubmitAgain,
    Verdict,
    judge,
)
from evaluators.trial import TrialProgress

NOW = 10_000.0
LIMIT_S = 100.0

NOTHING = Evidence(intended_at=NOW - 60, job_id="7")
CLAIM = Claim(job_id="7", at=NOW - 50, nodes="n[01-02]")
BEGUN = replace(NOTHING, claimed=True, claim=CLAIM)
BY_WHOM = replace(NOTHING, claimed=True)


def ended(code: int, *, duration_s: float = 20.0) -> Evidence:
    end = End(exit_code=code, began_at=NOW - 50, ended_at=NOW - 50 + duration_s)
    return replace(BEGUN, end=end)


def job(state: str, job_id: str = "7", **others: Any) -> Job:
    known: dict[str, Any] = {
        "submitted_at": NOW - 60,
        "started_at": NOW - 50,
        "ended_at": NOW - 10,
        "nodes": "n[01-02]",
    }
    return Job(id=job_id, name="t.1", state=state, **(known | others))


def sight(*jobs: Job, quiet_s: float | None = None, accounted: bool = True) -> Sight:
    """`quiet_s`: since when no job of the name has been seen alive."""
    if quiet_s is None and not any(not each.finished for each in jobs):
        quiet_s = SETTLE_S
    return Sight(
        now=NOW,
        jobs=jobs,
        asked_at=NOW - 1,
        quiet_since=None if quiet_s is None else NOW - quiet_s,
        accounted=accounted,
    )


UNASKED = Sight(now=NOW)


def verdict(evidence: Evidence, seen: Sight, **others: Any) -> str:
    """In one word and, where there is one, its status or reason."""
    known = {"begun_by": NOW - 40} | others
    return told(judge(evidence, seen, time_limit_s=LIMIT_S, **known))


def told(found: Verdict) -> str:
    if isinstance(found, TrialProgress):
        return f"{found.phase}: {found.reason}" if found.reason else found.phase
    if isinstance(found, Retry):
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
        (NOTHING, sight(PENDING), "waiting: behind jobs of higher priority (Priority)"),
        (NOTHING, sight(RUNNING), "running"),
        (NOTHING, sight(accounted=False), "look up"),
        (NOTHING, sight(), "submit again"),
        (replace(NOTHING, intended_at=NOW - 2), sight(), "waiting: being submitted to Slurm"),
        (NOTHING, sight(job("NODE_FAIL")), "again: node_fail"),
        (NOTHING, sight(job("BOOT_FAIL")), "again: node_fail"),
        (NOTHING, sight(job("PREEMPTED")), "again: preempted"),
        (NOTHING, sight(job("CANCELLED")), "ended: cancelled"),
        (NOTHING, sight(job("CANCELLED"), accounted=False), "look up"),
        (NOTHING, sight(job("FAILED")), "ended: crashed"),
        (NOTHING, sight(job("FAILED"), quiet_s=1), "running"),
        (NOTHING, sight(job("COMPLETED")), "ended: crashed"),
        (NOTHING, sight(job("TIMEOUT")), "ended: timeout"),
        (
            NOTHING,
            sight(job("FAILED"), job("PENDING", "8", reason="None")),
            "waiting: not yet looked at by Slurm (None)",
        ),
        # while it runs
        (BEGUN, UNASKED, "running"),
        (BEGUN, sight(RUNNING), "running"),
        (BEGUN, sight(job("COMPLETING")), "running"),
        (BEGUN, sight(job("SUSPENDED")), "waiting: suspended (SUSPENDED)"),
        (BY_WHOM, sight(RUNNING), "running"),
        # its job has gone
        (BEGUN, sight(quiet_s=1), "running"),
        (BEGUN, sight(accounted=False), "look up"),
        (BEGUN, sight(), "again: lost"),
        (BY_WHOM, sight(), "again: lost"),
        (BEGUN, sight(job("RUNNING", "9"), quiet_s=None), "running"),
        (BEGUN, sight(job("COMPLETED", "9")), "again: lost"),
        # its job ended, and did not say how
        (BEGUN, sight(job("NODE_FAIL")), "again: node_fail"),
        (BEGUN, sight(job("PREEMPTED")), "again: preempted"),
        (BEGUN, sight(job("PENDING", reason="BeginTime")), "again: preempted"),
        (BEGUN, sight(job("CANCELLED")), "ended: cancelled"),
        (BEGUN, sight(job("TIMEOUT")), "ended: timeout"),
        (BEGUN, sight(job("DEADLINE")), "ended: timeout"),
        (BEGUN, sight(job("OUT_OF_MEMORY")), "ended: oom"),
        (BEGUN, sight(job("FAILED"), quiet_s=1), "running"),
        (BEGUN, sight(job("FAILED")), "ended: as its files say"),
        (BEGUN, sight(job("COMPLETED")), "again: lost"),
        # it said how it ended
        (ended(0), UNASKED, "ended: as its files say"),
        (ended(0), sight(RUNNING), "ended: as its files say"),
        (ended(0), sight(job("NODE_FAIL")), "ended: as its files say"),
        (ended(124, duration_s=100), UNASKED, "ended: timeout"),
        (ended(137, duration_s=115), UNASKED, "ended: timeout"),
        (ended(124), sight(job("FAILED")), "ended: as its files say"),
        (ended(137), sight(job("FAILED")), "ended: as its files say"),
        (ended(1), UNASKED, "running"),
        (ended(1), sight(RUNNING), "running"),
        (ended(1), sight(job("COMPLETING")), "running"),
        (ended(1), sight(), "ended: as its files say"),
        (ended(1), sight(job("FAILED")), "ended: as its files say"),
        (ended(1), sight(job("OUT_OF_MEMORY")), "ended: oom"),
        (ended(143), sight(job("NODE_FAIL")), "again: node_fail"),
        (ended(143), sight(job("PREEMPTED")), "again: preempted"),
        (ended(143), sight(job("CANCELLED")), "ended: cancelled"),
    ],
)
def test_what_becomes_of_an_attempt(evidence: Evidence, seen: Sight, expected: str) -> None:
    assert verdict(evidence, seen) == expected


@pytest.mark.parametrize(
    ("evidence", "seen", "expected"),
    [
        (NOTHING, UNASKED, "waiting: being submitted to Slurm"),
        (NOTHING, sight(RUNNING), "running"),
        (NOTHING, sight(accounted=False), "ended: cancelled"),
        (NOTHING, sight(job("CANCELLED"), accounted=False), "ended: cancelled"),
        (BEGUN, sight(RUNNING), "running"),
        (BEGUN, sight(quiet_s=1), "ended: cancelled"),
        (BEGUN, sight(job("CANCELLED")), "ended: cancelled"),
        (BEGUN, sight(job("NODE_FAIL")), "ended: cancelled"),
        (BEGUN, sight(job("COMPLETED")), "ended: cancelled"),
        (BEGUN, sight(job("PENDING", reason="BeginTime")), "ended: cancelled"),
        (ended(143), UNASKED, "ended: cancelled"),
        (ended(0), UNASKED, "ended: as its files say"),
    ],
)
def test_what_becomes_of_an_attempt_that_we_end(
    evidence: Evidence, seen: Sight, expected: str
) -> None:
    assert verdict(evidence, seen, cancelled=True) == expected


def test_a_status_call_from_before_it_began_does_not_show_it_put_back() -> None:
    shown = sight(job("PENDING", reason="None"))
    assert verdict(BEGUN, shown, begun_by=NOW - 0.5) == "running"
    assert verdict(BEGUN, shown, begun_by=NOW - 5) == "again: preempted"


def test_a_job_is_waited_for_from_when_sbatch_ended() -> None:
    """Not from the intent alone: the client may have hung for long before it sent anything."""
    assert verdict(NOTHING, sight(), submitted_at=NOW - 2) == "waiting: being submitted to Slurm"


def test_who_cancelled_it_is_said_where_accounting_knows() -> None:
    by_hand = job("CANCELLED", cancelled_by=1234)
    found = judge(BEGUN, sight(by_hand, accounted=False), time_limit_s=LIMIT_S)
    assert isinstance(found, AttemptEnd)
    assert found.reason == "its job was cancelled by user 1234, and not by this campaign"


def test_a_folder_that_the_nodes_cannot_see_is_named_as_the_cause() -> None:
    found = judge(NOTHING, sight(job("FAILED", exit_code=66)), time_limit_s=LIMIT_S)
    assert isinstance(found, AttemptEnd)
    assert found.reason == FOLDER_NOT_SHARED
    assert found.duration_s == 40


def test_the_nodes_and_the_time_are_of_the_job_that_began() -> None:
    seen = sight(job("FAILED", "6", nodes="n09"), job("FAILED", "7"))
    found = judge(ended(3), seen, time_limit_s=LIMIT_S)
    assert isinstance(found, AttemptEnd)
    assert (found.host, found.job_id, found.exit_code) == ("n[01-02]", "7", 3)
    assert found.duration_s == 20
    assert found.started_at.timestamp() == NOW - 50


def test_a_lost_job_held_its_nodes_no_longer_than_its_limit() -> None:
    long_ago = replace(BEGUN, claim=replace(CLAIM, at=NOW - 5000))
    found = judge(long_ago, sight(), time_limit_s=LIMIT_S)
    assert isinstance(found, Retry)
    assert found.ended.duration_s == LIMIT_S


def test_while_accounting_is_asked_the_trial_stands_as_before() -> None:
    found = judge(BEGUN, sight(accounted=False), time_limit_s=LIMIT_S)
    assert isinstance(found, LookUp)
    assert found.standing.phase == "running"
    assert found.standing.host == "n[01-02]"
