"""Which jobs are ours, since when there has been none, and which are to be ended."""

from __future__ import annotations

from typing import Any

import pytest

from evaluators.slurm.commands import SlurmJob
from evaluators.slurm.job_records import (
    CANCEL_AGAIN_S,
    CLOCKS_DIFFER_S,
    JobRecords,
    LookUp,
    SubmitState,
    SubmitStatus,
)
from evaluators.slurm.job_tracker import HURRY_FACTOR, LONGEST_PAUSE_S, SHORTEST_S, PollSchedule

NOW = 10_000.0
NAME = "trial-a.1"
SETTLE_S = 3.0
LOOK_UP = LookUp(since=NOW, nodes="")


def job(state: str = "RUNNING", job_id: str = "7", **others: Any) -> SlurmJob:
    known: dict[str, Any] = {"name": NAME, "submitted_at": NOW} | others
    return SlurmJob(id=job_id, state=state, **known)


def watching(state: SubmitState = SubmitState.TRIED, *, job_id: str | None = "7") -> JobRecords:
    records = JobRecords(settle_s=SETTLE_S, accounting_limit_s=60.0)
    records.add(NAME, SubmitStatus(state=state, at=NOW, job_id=job_id), since=NOW)
    return records


def absent_since(records: JobRecords) -> float | None:
    return records.status(NAME, now=NOW, accounting=True).absent_since


def states(records: JobRecords) -> list[str]:
    return [each.state for each in records.status(NAME, now=NOW, accounting=True).jobs]


def test_a_name_is_quiet_from_the_first_call_with_no_living_job() -> None:
    records = watching()
    records.take_in([job()], queried_at=NOW + 1)
    assert absent_since(records) is None
    records.take_in([job("COMPLETED")], queried_at=NOW + 2)
    records.take_in([], queried_at=NOW + 3)
    assert absent_since(records) == NOW + 2
    records.take_in([job("PENDING", "8")], queried_at=NOW + 4)
    assert absent_since(records) is None


def test_a_status_call_of_before_it_was_sent_does_not_count() -> None:
    """It waited in our own queue then, or sbatch was at work."""
    records = watching(SubmitState.QUEUED)
    records.take_in([], queried_at=NOW + 1)
    records.note_submitted(NAME, SubmitStatus(state=SubmitState.UNDER_WAY, at=NOW + 2))
    records.take_in([], queried_at=NOW + 3)
    records.note_submitted(NAME, SubmitStatus(state=SubmitState.TRIED, at=NOW + 4, job_id="7"))
    assert absent_since(records) is None
    records.take_in([], queried_at=NOW + 3.5)
    assert absent_since(records) is None
    records.take_in([], queried_at=NOW + 5)
    assert absent_since(records) == NOW + 5


def test_a_name_followed_later_finds_its_job_in_an_earlier_call() -> None:
    records = JobRecords(settle_s=SETTLE_S, accounting_limit_s=60.0)
    records.take_in([job()], queried_at=NOW + 10)
    records.add(NAME, SubmitStatus(state=SubmitState.TRIED, at=NOW), since=NOW)
    assert states(records) == ["RUNNING"]


def test_a_job_that_is_older_than_its_name_is_of_something_else() -> None:
    records = watching(job_id=None)
    older = job("FAILED", "3", submitted_at=NOW - CLOCKS_DIFFER_S - 1)
    records.take_in([older, job("PENDING", "8")], queried_at=NOW + 1)
    assert states(records) == ["PENDING"]


def test_a_job_that_is_known_is_ours_whatever_the_clocks_say() -> None:
    records = watching(job_id=None)
    records.take_in([job(submitted_at=NOW - 300)], queried_at=NOW + 1)
    assert states(records) == []
    records.recognise(NAME, "7")
    assert states(records) == ["RUNNING"]


def test_sending_it_again_keeps_what_was_known_of_its_first_jobs() -> None:
    records = watching()
    records.add(NAME, SubmitStatus(state=SubmitState.QUEUED, at=NOW + 60), since=NOW + 60)
    records.take_in([job("PENDING")], queried_at=NOW + 61)
    assert states(records) == ["PENDING"], "it is older than the second submission"


def test_accounting_is_believed_about_the_dead_alone() -> None:
    """A job that a rolled-back controller has forgotten runs on there for ever."""
    records = watching()
    records.take_in([], queried_at=NOW + 5)
    records.take_in_accounting([NAME], [job(), job("NODE_FAIL", "7")], now=NOW)
    assert states(records) == ["NODE_FAIL"]
    assert records.status(NAME, now=NOW, accounting=True).accounted


def test_only_jobs_of_ours_count_when_a_node_failed() -> None:
    records = watching()
    mine, other = job("NODE_FAIL", nodes="n01"), job("NODE_FAIL", name="foreign", nodes="n02")
    assert records.node_failures([mine, other]) == {NAME: "n01"}
    records.note_failed_nodes(NAME, frozenset({"n01"}))
    assert records.node_failures([mine]) == {}
    assert records.failed_nodes(NAME) == {"n01"}


def test_only_living_jobs_of_a_cancelled_name_are_ended() -> None:
    records = watching()
    jobs = [job(), job("PENDING", "2"), job(job_id="3", name="b"), job("COMPLETED", "4")]
    assert records.to_cancel(jobs, now=NOW) == []
    assert records.cancel(NAME, at=NOW)
    assert not records.cancel(NAME, at=NOW + 1), "once"
    assert records.to_cancel([*jobs, job("COMPLETING", "5")], now=NOW + 1) == ["7", "2"]


def test_an_older_job_of_a_cancelled_name_ends_only_if_ours() -> None:
    records = watching(job_id=None)
    records.cancel(NAME, at=NOW)
    older = job(submitted_at=NOW - CLOCKS_DIFFER_S - 1)
    assert records.to_cancel([older], now=NOW + 1) == []
    records.recognise(NAME, "7")
    assert records.to_cancel([older], now=NOW + 1) == ["7"]


def test_a_job_is_signalled_again_only_after_a_while() -> None:
    records = watching()
    records.cancel(NAME, at=NOW)
    records.note_signalled(["7"], now=NOW)
    assert records.to_cancel([job()], now=NOW + CANCEL_AGAIN_S - 1) == []
    assert records.to_cancel([job()], now=NOW + CANCEL_AGAIN_S + 1) == ["7"]


@pytest.mark.parametrize("tracked", [True, False])
def test_a_cancellation_ends_once_none_of_its_jobs_can_turn_up(tracked: bool) -> None:
    records = watching()
    name = NAME if tracked else "of an earlier process"
    records.cancel(name, at=NOW)
    records.remove(name)
    records.to_cancel([], now=NOW + SETTLE_S - 1)
    assert records.cancels
    assert records.to_cancel([job(name=name)], now=NOW + 100) == ["7"]
    assert records.cancels
    records.to_cancel([], now=NOW + 300)
    assert not records.cancels


def test_a_cancelled_name_whose_job_is_being_submitted_stays_so() -> None:
    records = watching(SubmitState.UNDER_WAY)
    records.cancel(NAME, at=NOW)
    records.to_cancel([], now=NOW + 200)
    assert records.cancels


def test_accounting_is_queried_again_only_after_a_while() -> None:
    records = watching()
    assert records.ask_about(NAME, LOOK_UP, unless_since=NOW)
    assert not records.ask_about(NAME, LOOK_UP, unless_since=NOW), "it is due"
    assert records.look_ups() == {NAME: LOOK_UP}
    records.take_in_accounting([NAME], [], now=NOW + 5)
    assert records.look_ups() == {}
    assert not records.ask_about(NAME, LOOK_UP, unless_since=NOW)
    assert records.ask_about(NAME, LOOK_UP, unless_since=NOW + 5)


def call(schedule: PollSchedule, *, at: float, took: float, answered: bool = True) -> float:
    """Seconds from the end of a status call to the next one."""
    schedule.began(now=at)
    (schedule.answered if answered else schedule.unanswered)(now=at + took)
    return schedule.status_due(hurry=False) - (at + took)


def test_the_interval_grows_only_while_slurm_is_slow() -> None:
    schedule = PollSchedule(interval_s=5.0)
    assert schedule.status_due(hurry=False) < 0, "the first call is due at once"
    assert call(schedule, at=100, took=4.0) == 20.0
    assert call(schedule, at=200, took=29.0) == LONGEST_PAUSE_S
    assert call(schedule, at=300, took=0.02) == 5.0
    assert schedule.status_due(hurry=True) == pytest.approx(300 + 5.02 / HURRY_FACTOR)


def test_a_call_that_is_not_answered_is_not_repeated_at_once() -> None:
    schedule = PollSchedule(interval_s=1.0)
    assert call(schedule, at=100, took=30.0, answered=False) == 30.0
    assert call(schedule, at=200, took=0.1, answered=False) == 1.0


def test_two_questions_a_second_are_the_most() -> None:
    schedule = PollSchedule(interval_s=0.01)
    call(schedule, at=100, took=0.01)
    assert schedule.status_due(hurry=True) == schedule.status_due(hurry=False) == 100 + SHORTEST_S
    assert schedule.accounting_due() == 100 + SHORTEST_S


def test_accounting_that_does_not_answer_does_not_slow_the_rest() -> None:
    schedule = PollSchedule(interval_s=5.0)
    call(schedule, at=100, took=0)
    schedule.began(now=101)
    schedule.accounting_unanswered(now=111)
    assert schedule.status_due(hurry=False) == 106
    assert schedule.accounting_due() == 101 + 10 + 25
