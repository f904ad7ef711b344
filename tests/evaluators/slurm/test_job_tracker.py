from __future__ import annotations

from evaluators.slurm.job_tracker import LONGEST_PAUSE_S, SHORTEST_S, PollSchedule


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
