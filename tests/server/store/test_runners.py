from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import update

from server.store import Store
from server.store.runners import (
    FORGOTTEN_AFTER_S,
    SILENT_AFTER_S,
    RunnerOffer,
    known_runners,
    note_runner,
)
from server.store.tables import RunnerRow

MINUTE_S = 60.0


def told(store: Store, *owners: tuple[str, float, float]) -> list[str]:
    """Which are told of, of runners that began, and were last heard of, so many seconds ago."""
    now = datetime.now(UTC)
    with store.transaction() as session:
        for owner, began_s, silent_s in owners:
            began = now - timedelta(seconds=began_s)
            offer = RunnerOffer(evaluators=["simulated"])
            note_runner(
                session, owner, version="1", started_at=began, offer=offer, full=False, figures=[]
            )
            seen = RunnerRow.seen_at - silent_s
            session.execute(update(RunnerRow).where(RunnerRow.owner == owner).values(seen_at=seen))
    with store.session() as session:
        return [runner.owner for runner in known_runners(session)]


def test_a_runner_of_a_container_that_was_started_again_is_told_of_no_more(store: Store) -> None:
    silent_s = SILENT_AFTER_S + 1.0
    before, other, neighbour = "c1/17/7/1.00", "c2/18/7/1.00", "c1/17/8/1.00"
    after = "c1/19/7/2.00"
    old = ((before, 503.0, silent_s), (other, 502.0, silent_s), (neighbour, 501.0, 1.0))
    assert told(store, *old) == [before, other, neighbour]
    assert told(store, (after, silent_s - 1.0, 1.0)) == [other, neighbour, after]
    assert told(store, (before, 503.0, 0.0)) == [before, other, neighbour, after], "it lives"


def test_a_runner_that_was_silent_for_long_is_told_of_no_more(store: Store) -> None:
    assert told(store, ("c1/17/7/1.00", 9000.0, FORGOTTEN_AFTER_S + 1.0)) == []
    assert told(store, ("c2/17/7/1.00", 9000.0, FORGOTTEN_AFTER_S - MINUTE_S)) == ["c2/17/7/1.00"]
