"""What a runner writes: trials before they start, and what came of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import uuid4

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from autotune.schemas import StrategyShape, Trial, TrialState
from server.store.events import announce
from server.store.tables import CampaignRow, TrialRow
from server.store.wire import trial_of

Purpose = Literal["search", "confirmation"]


@dataclass(frozen=True, kw_only=True)
class NewTrial:
    """A trial that is about to start, with what the cost model expects of it."""

    strategy: StrategyShape
    purpose: Purpose
    predicted_iteration_time_s: float
    predicted_memory_gib: float


def insert_trials(
    session: Session, campaign: CampaignRow, trials: Sequence[NewTrial]
) -> list[Trial]:
    """Pending rows, each with the next number and a token of its own."""
    last = session.scalar(
        select(func.max(TrialRow.number)).where(TrialRow.campaign_id == campaign.id)
    )
    rows = [
        TrialRow(
            campaign_id=campaign.id,
            number=number,
            token=f"c{campaign.id}-t{number}-{uuid4().hex[:12]}",
            purpose=trial.purpose,
            strategy=trial.strategy.model_dump(mode="json"),
            state=TrialState.PENDING,
            simulated=campaign.simulated,
            created_at=datetime.now(UTC),
            predicted_iteration_time_s=trial.predicted_iteration_time_s,
            predicted_memory_gib=trial.predicted_memory_gib,
            measurements=[],
            peak_memory_gib=[],
            versions={},
        )
        for number, trial in enumerate(trials, start=(last or 0) + 1)
    ]
    session.add_all(rows)
    session.flush()
    for row in rows:
        announce(session, "trial", campaign_id=campaign.id, trial_number=row.number)
    return [trial_of(row) for row in rows]


def finish_trial(session: Session, trial: Trial, values: Mapping[str, Any]) -> bool:
    """Write a pending trial's final state; False, and nothing written, where it has one already."""
    return _change_pending(session, trial, values)


def note_standing(session: Session, trial: Trial, values: Mapping[str, Any]) -> bool:
    """Write how a pending trial stands; False, and nothing written, where it has ended."""
    return _change_pending(session, trial, values)


def _change_pending(session: Session, trial: Trial, values: Mapping[str, Any]) -> bool:
    statement = (
        update(TrialRow)
        .where(TrialRow.id == trial.id, TrialRow.state == TrialState.PENDING)
        .values(**values)
        .execution_options(synchronize_session=False)
        .returning(TrialRow.id)
    )
    if session.execute(statement).first() is None:
        return False
    announce(session, "trial", campaign_id=trial.campaign_id, trial_number=trial.number)
    return True


def finish_all(session: Session, campaign_id: int, values: Mapping[str, Any]) -> None:
    """Write the final state of every pending trial, unread: a row may make no sense."""
    statement = (
        update(TrialRow)
        .where(TrialRow.campaign_id == campaign_id, TrialRow.state == TrialState.PENDING)
        .values(**values)
        .execution_options(synchronize_session=False)
        .returning(TrialRow.number)
    )
    for number in sorted(session.scalars(statement)):
        announce(session, "trial", campaign_id=campaign_id, trial_number=number)


def pending_trials(session: Session, campaign_id: int) -> list[Trial]:
    """In the order of their numbers."""
    query = (
        select(TrialRow)
        .where(TrialRow.campaign_id == campaign_id, TrialRow.state == TrialState.PENDING)
        .order_by(TrialRow.number)
    )
    return [trial_of(row) for row in session.scalars(query)]
