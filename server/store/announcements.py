"""Events: one for each change, written in its transaction."""

from __future__ import annotations

from typing import Literal

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.store.tables import EventRow

Kind = Literal["campaign", "trial", "recommendation"]
EVENT_LOCK = 0x6175746F
_WAITING = "events"


def announce(
    session: Session,
    kind: Kind,
    *,
    campaign_id: int,
    trial_number: int | None = None,
    first: bool = False,
) -> None:
    """Write an event when this transaction ends; `Store.transaction` does so.

    Args:
        first: write it before all events announced so far.
    """
    event = EventRow(campaign_id=campaign_id, kind=kind, trial_number=trial_number)
    waiting = session.info.setdefault(_WAITING, [])
    waiting.insert(0 if first else len(waiting), event)


def write_announced(session: Session) -> None:
    """Insert the announced events, last in the transaction, under one lock.

    A reader resumes after the highest id it has seen, so ids must become visible in order, and two
    transactions on PostgreSQL could commit theirs in another one. The lock is the last one that a
    transaction takes, so that no deadlock is possible. SQLite has one writer.
    """
    events = session.info.pop(_WAITING, [])
    if not events:
        return
    session.flush()
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(EVENT_LOCK)))
    session.add_all(events)
    session.flush()
