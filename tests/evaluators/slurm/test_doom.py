from __future__ import annotations

from evaluators.slurm.doom import AGAIN_S, Doomed
from evaluators.slurm.job import Job
from evaluators.slurm.judgement import SETTLE_S
from evaluators.slurm.watchlist import CLOCKS_DIFFER_S

NOW = 10_000.0


def job(job_id: str, name: str = "a", state: str = "RUNNING", submitted_at: float = NOW) -> Job:
    return Job(id=job_id, name=name, state=state, submitted_at=submitted_at)


def due(doomed: Doomed, *jobs: Job, now: float = NOW + 1, **known: set[str]) -> list[str]:
    """`ours`: ids; `unsettled`: names."""
    ours = [each for each in jobs if each.id in known.get("ours", ())]
    return doomed.due(jobs, ours=ours, unsettled=known.get("unsettled", ()), now=now)


def doomed(name: str = "a") -> Doomed:
    found = Doomed()
    found.add(name, at=NOW, since=NOW)
    return found


def test_every_living_job_of_the_name_is_ended_and_no_other() -> None:
    jobs = [job("1"), job("2", state="PENDING"), job("3", "b"), job("4", state="COMPLETED")]
    assert due(doomed(), *jobs, job("5", state="COMPLETING")) == ["1", "2"]


def test_an_older_job_of_the_same_name_is_left_alone_unless_it_is_known_as_ours() -> None:
    older = job("1", submitted_at=NOW - CLOCKS_DIFFER_S - 1)
    assert due(doomed(), older) == []
    assert due(doomed(), older, ours={"1"}) == ["1"]


def test_a_job_is_told_again_only_after_a_while() -> None:
    names = doomed()
    names.told(["1"], now=NOW)
    assert due(names, job("1"), now=NOW + AGAIN_S - 1) == []
    assert due(names, job("1"), now=NOW + AGAIN_S + 1) == ["1"]


def test_a_name_is_dropped_once_none_of_its_jobs_can_turn_up() -> None:
    names = doomed()
    due(names, now=NOW + SETTLE_S - 1)
    assert "a" in names
    due(names, job("1"), now=NOW + 100)
    due(names, unsettled={"a"}, now=NOW + 200)
    assert "a" in names
    due(names, now=NOW + 300)
    assert "a" not in names
    assert len(names) == 0
