"""Which jobs are ours, and since when there has been none."""

from __future__ import annotations

from typing import Any

from evaluators.slurm.job import Job
from evaluators.slurm.watchlist import CLOCKS_DIFFER_S, Sending, Sent, Watchlist

NOW = 10_000.0
NAME = "trial-a.1"


def job(state: str = "RUNNING", job_id: str = "7", **others: Any) -> Job:
    known: dict[str, Any] = {"name": NAME, "submitted_at": NOW} | others
    return Job(id=job_id, state=state, **known)


def watching(sending: Sending = Sending.TRIED, *, job_id: str | None = "7") -> Watchlist:
    found = Watchlist()
    found.add(NAME, Sent(sending=sending, at=NOW, job_id=job_id), since=NOW)
    return found


def quiet_since(watchlist: Watchlist) -> float | None:
    return watchlist.sight(NAME, now=NOW, accounting=True).quiet_since


def states(watchlist: Watchlist) -> list[str]:
    return [each.state for each in watchlist.sight(NAME, now=NOW, accounting=True).jobs]


def test_a_name_is_quiet_from_the_first_status_call_that_shows_no_living_job() -> None:
    watchlist = watching()
    watchlist.take_in([job()], asked_at=NOW + 1)
    assert quiet_since(watchlist) is None
    watchlist.take_in([job("COMPLETED")], asked_at=NOW + 2)
    watchlist.take_in([], asked_at=NOW + 3)
    assert quiet_since(watchlist) == NOW + 2
    watchlist.take_in([job("PENDING", "8")], asked_at=NOW + 4)
    assert quiet_since(watchlist) is None


def test_a_status_call_of_before_it_was_sent_does_not_count() -> None:
    """It waited in our own queue then, or sbatch was at work."""
    watchlist = watching(Sending.QUEUED)
    watchlist.take_in([], asked_at=NOW + 1)
    watchlist.note_sent(NAME, Sent(sending=Sending.UNDER_WAY, at=NOW + 2))
    watchlist.take_in([], asked_at=NOW + 3)
    watchlist.note_sent(NAME, Sent(sending=Sending.TRIED, at=NOW + 4, job_id="7"))
    assert quiet_since(watchlist) is None
    watchlist.take_in([], asked_at=NOW + 3.5)
    assert quiet_since(watchlist) is None
    watchlist.take_in([], asked_at=NOW + 5)
    assert quiet_since(watchlist) == NOW + 5


def test_one_that_is_followed_later_finds_its_job_in_an_earlier_status_call() -> None:
    watchlist = Watchlist()
    watchlist.take_in([job()], asked_at=NOW + 10)
    watchlist.add(NAME, Sent(sending=Sending.TRIED, at=NOW), since=NOW)
    assert states(watchlist) == ["RUNNING"]


def test_a_job_that_is_older_than_its_name_is_of_something_else() -> None:
    watchlist = watching(job_id=None)
    older = job("FAILED", "3", submitted_at=NOW - CLOCKS_DIFFER_S - 1)
    watchlist.take_in([older, job("PENDING", "8")], asked_at=NOW + 1)
    assert states(watchlist) == ["PENDING"]


def test_a_job_that_is_known_is_ours_whatever_the_clocks_say() -> None:
    watchlist = watching(job_id=None)
    watchlist.take_in([job(submitted_at=NOW - 300)], asked_at=NOW + 1)
    assert states(watchlist) == []
    watchlist.recognise(NAME, "7")
    assert states(watchlist) == ["RUNNING"]


def test_sending_it_again_keeps_what_was_known_of_its_first_jobs() -> None:
    watchlist = watching()
    watchlist.add(NAME, Sent(sending=Sending.QUEUED, at=NOW + 60), since=NOW + 60)
    watchlist.take_in([job("PENDING")], asked_at=NOW + 61)
    assert states(watchlist) == ["PENDING"]
    assert watchlist.since(NAME) == NOW


def test_accounting_is_believed_about_the_dead_alone() -> None:
    """A job that a rolled-back controller has forgotten runs on there for ever."""
    watchlist = watching()
    watchlist.take_in([], asked_at=NOW + 5)
    watchlist.take_in_accounting([NAME], [job(), job("NODE_FAIL", "7")])
    assert states(watchlist) == ["NODE_FAIL"]
    assert watchlist.sight(NAME, now=NOW, accounting=True).accounted


def test_only_a_job_of_ours_is_asked_about_when_a_node_failed() -> None:
    watchlist = watching()
    mine, other = job("NODE_FAIL", nodes="n01"), job("NODE_FAIL", name="foreign", nodes="n02")
    assert watchlist.unblamed([mine, other]) == {NAME: "n01"}
    watchlist.blame(NAME, frozenset({"n01"}))
    assert watchlist.unblamed([mine]) == {}
    assert watchlist.failed_nodes(NAME) == {"n01"}
