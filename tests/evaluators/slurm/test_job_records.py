"""Which jobs are ours, since when there has been none, and which are to be ended."""

from __future__ import annotations

from typing import Any

from evaluators.slurm.commands import SlurmJob
from evaluators.slurm.job_records import (
    CANCEL_AGAIN_S,
    CLOCKS_DIFFER_S,
    Cancellations,
    JobRecords,
    SubmitState,
    SubmitStatus,
)
from evaluators.slurm.job_tracker import LONGEST_PAUSE_S, SHORTEST_S, PollSchedule

NOW = 10_000.0
NAME = "trial-a.1"
SETTLE_S = 3.0


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


def test_a_name_is_quiet_from_the_first_status_call_that_shows_no_living_job() -> None:
    records = watching()
    records.take_in([job()], asked_at=NOW + 1)
    assert absent_since(records) is None
    records.take_in([job("COMPLETED")], asked_at=NOW + 2)
    records.take_in([], asked_at=NOW + 3)
    assert absent_since(records) == NOW + 2
    records.take_in([job("PENDING", "8")], asked_at=NOW + 4)
    assert absent_since(records) is None


def test_a_status_call_of_before_it_was_sent_does_not_count() -> None:
    """It waited in our own queue then, or sbatch was at work."""
    records = watching(SubmitState.QUEUED)
    records.take_in([], asked_at=NOW + 1)
    records.note_submitted(NAME, SubmitStatus(state=SubmitState.UNDER_WAY, at=NOW + 2))
    records.take_in([], asked_at=NOW + 3)
    records.note_submitted(NAME, SubmitStatus(state=SubmitState.TRIED, at=NOW + 4, job_id="7"))
    assert absent_since(records) is None
    records.take_in([], asked_at=NOW + 3.5)
    assert absent_since(records) is None
    records.take_in([], asked_at=NOW + 5)
    assert absent_since(records) == NOW + 5


def test_one_that_is_followed_later_finds_its_job_in_an_earlier_status_call() -> None:
    records = JobRecords(settle_s=SETTLE_S, accounting_limit_s=60.0)
    records.take_in([job()], asked_at=NOW + 10)
    records.add(NAME, SubmitStatus(state=SubmitState.TRIED, at=NOW), since=NOW)
    assert states(records) == ["RUNNING"]


def test_a_job_that_is_older_than_its_name_is_of_something_else() -> None:
    records = watching(job_id=None)
    older = job("FAILED", "3", submitted_at=NOW - CLOCKS_DIFFER_S - 1)
    records.take_in([older, job("PENDING", "8")], asked_at=NOW + 1)
    assert states(records) == ["PENDING"]


def test_a_job_that_is_known_is_ours_whatever_the_clocks_say() -> None:
    records = watching(job_id=None)
    records.take_in([job(submitted_at=NOW - 300)], asked_at=NOW + 1)
    assert states(records) == []
    records.recognise(NAME, "7")
    assert states(records) == ["RUNNING"]


def test_sending_it_again_keeps_what_was_known_of_its_first_jobs() -> None:
    records = watching()
    records.add(NAME, SubmitStatus(state=SubmitState.QUEUED, at=NOW + 60), since=NOW + 60)
    records.take_in([job("PENDING")], asked_at=NOW + 61)
    assert states(records) == ["PENDING"]
    assert records.since(NAME) == NOW


def test_accounting_is_believed_about_the_dead_alone() -> None:
    """A job that a rolled-back controller has forgotten runs on there for ever."""
    records = watching()
    records.take_in([], asked_at=NOW + 5)
    records.take_in_accounting([NAME], [job(), job("NODE_FAIL", "7")], now=NOW)
    assert states(records) == ["NODE_FAIL"]
    assert records.status(NAME, now=NOW, accounting=True).accounted


def test_only_a_job_of_ours_is_asked_about_when_a_node_failed() -> None:
    records = watching()
    mine, other = job("NODE_FAIL", nodes="n01"), job("NODE_FAIL", name="foreign", nodes="n02")
    assert records.node_failures([mine, other]) == {NAME: "n01"}
    records.note_failed_nodes(NAME, frozenset({"n01"}))
    assert records.node_failures([mine]) == {}
    assert records.failed_nodes(NAME) == {"n01"}


def named(
    job_id: str, name: str = "a", state: str = "RUNNING", submitted_at: float = NOW
) -> SlurmJob:
    return SlurmJob(id=job_id, name=name, state=state, submitted_at=submitted_at)


def due(
    cancelled: Cancellations, *jobs: SlurmJob, now: float = NOW + 1, **known: set[str]
) -> list[str]:
    """`ours`: ids; `unsettled`: names."""
    ours = [each for each in jobs if each.id in known.get("ours", ())]
    return cancelled.due(jobs, ours=ours, unsettled=known.get("unsettled", ()), now=now)


def cancelling(name: str = "a") -> Cancellations:
    cancellations = Cancellations(settle_s=SETTLE_S)
    cancellations.add(name, at=NOW, since=NOW)
    return cancellations


def test_every_living_job_of_the_name_is_ended_and_no_other() -> None:
    jobs = [named("1"), named("2", state="PENDING"), named("3", "b"), named("4", state="COMPLETED")]
    assert due(cancelling(), *jobs, named("5", state="COMPLETING")) == ["1", "2"]


def test_an_older_job_of_the_same_name_is_left_alone_unless_it_is_known_as_ours() -> None:
    older = named("1", submitted_at=NOW - CLOCKS_DIFFER_S - 1)
    assert due(cancelling(), older) == []
    assert due(cancelling(), older, ours={"1"}) == ["1"]


def test_a_job_is_told_again_only_after_a_while() -> None:
    names = cancelling()
    names.note_signalled(["1"], now=NOW)
    assert due(names, named("1"), now=NOW + CANCEL_AGAIN_S - 1) == []
    assert due(names, named("1"), now=NOW + CANCEL_AGAIN_S + 1) == ["1"]


def test_a_name_is_dropped_once_none_of_its_jobs_can_turn_up() -> None:
    names = cancelling()
    due(names, now=NOW + SETTLE_S - 1)
    assert "a" in names
    due(names, named("1"), now=NOW + 100)
    due(names, unsettled={"a"}, now=NOW + 200)
    assert "a" in names
    due(names, now=NOW + 300)
    assert "a" not in names
    assert len(names) == 0


def call(schedule: PollSchedule, *, at: float, took: float, answered: bool = True) -> float:
    """Seconds from the end of a status call to the next one."""
    schedule.asked(now=at)
    (schedule.answered if answered else schedule.unanswered)(now=at + took)
    return schedule.status_due(hurry=False) - (at + took)


def test_the_first_call_is_due_at_once() -> None:
    assert PollSchedule(interval_s=5.0).status_due(hurry=False) < 0


def test_the_interval_holds_while_slurm_is_quick() -> None:
    assert call(PollSchedule(interval_s=5.0), at=100, took=0.02) == 5.0


def test_a_slow_answer_brings_a_longer_pause_and_a_quick_one_ends_it() -> None:
    schedule = PollSchedule(interval_s=5.0)
    assert call(schedule, at=100, took=4.0) == 20.0
    assert call(schedule, at=200, took=29.0) == LONGEST_PAUSE_S
    assert call(schedule, at=300, took=0.02) == 5.0


def test_a_call_that_is_not_answered_is_not_repeated_at_once() -> None:
    schedule = PollSchedule(interval_s=1.0)
    assert call(schedule, at=100, took=30.0, answered=False) == 30.0
    assert call(schedule, at=200, took=0.1, answered=False) == 1.0


def test_two_questions_a_second_are_the_most() -> None:
    schedule = PollSchedule(interval_s=0.01)
    schedule.asked(now=100)
    schedule.answered(now=100.01)
    assert schedule.status_due(hurry=True) == schedule.status_due(hurry=False) == 100 + SHORTEST_S
    assert schedule.accounting_due() == 100 + SHORTEST_S


def test_haste_shortens_the_interval() -> None:
    schedule = PollSchedule(interval_s=30.0)
    schedule.asked(now=100)
    schedule.answered(now=100)
    assert schedule.status_due(hurry=True) == 106


def test_accounting_that_does_not_answer_does_not_slow_the_rest() -> None:
    schedule = PollSchedule(interval_s=5.0)
    call(schedule, at=100, took=0)
    schedule.asked(now=101)
    schedule.accounting_unanswered(now=111)
    assert schedule.status_due(hurry=False) == 106
    assert schedule.accounting_due() == 101 + 10 + 25
