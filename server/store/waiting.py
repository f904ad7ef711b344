"""Campaigns that no runner has claimed say so in their `reason`."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from autotune.schemas.choices import CampaignState
from server.campaign.scheduling import WAITS, while_confirming
from server.store.leases import is_free
from server.store.store import Store, announce
from server.store.tables import CampaignRow

WITH_REASON = (CampaignState.QUEUED, CampaignState.RUNNING)
"""In these states the reason is only what the campaign waits for; while it confirms, the reason
also says why its search ended."""


def reason_to_wait(evaluator: str, owner: str | None, *, own_runner: bool) -> str:
    """Return what a campaign waits for that no runner has claimed."""
    if own_runner:
        return (
            f"waits for a runner of {owner or 'its owner'} that takes {evaluator} trials "
            "(autotune runner --as-me)"
        )
    return f"waits for a runner that takes {evaluator} trials (autotune runner)"


class WaitingNotes:
    """Writes the reason of campaigns that were free at two looks in a row. The runner that claims
    one removes it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._free: set[int] = set()

    def look(self) -> None:
        """Update the reasons of the campaigns that are free now."""
        free = is_free() & CampaignRow.state.in_((*WITH_REASON, CampaignState.CONFIRMING))
        columns = (
            CampaignRow.id,
            CampaignRow.state,
            CampaignRow.reason,
            CampaignRow.evaluator,
            CampaignRow.owner,
            CampaignRow.own_runner,
        )
        with self._store.session() as session:
            found = session.execute(select(*columns).where(free)).all()
        before, self._free = self._free, {row.id for row in found}
        changed: dict[int, str] = {}
        for row in found:
            reason = reason_to_wait(row.evaluator, row.owner, own_runner=row.own_runner)
            if row.state == CampaignState.CONFIRMING:
                reason = while_confirming(row.reason, reason)
            if row.id in before and reason != row.reason:
                changed[row.id] = reason
        if not changed:
            return
        with self._store.transaction() as session:
            for campaign_id, reason in changed.items():
                waiting = update(CampaignRow).where(CampaignRow.id == campaign_id, free)
                if session.execute(
                    waiting.values(reason=reason)
                    .returning(CampaignRow.id)
                    .execution_options(synchronize_session=False)
                ).first():
                    announce(session, "campaign", campaign_id=campaign_id)


def forget_waiting(session: Session, campaign_ids: Sequence[int]) -> None:
    """Remove the reasons to wait of campaigns that a runner has claimed."""
    waiting = update(CampaignRow).where(
        CampaignRow.id.in_(campaign_ids),
        CampaignRow.state.in_(WITH_REASON),
        CampaignRow.reason != "",
    )
    cleared = waiting.values(reason="").returning(CampaignRow.id)
    freed = list(session.scalars(cleared.execution_options(synchronize_session=False)))
    confirming = select(CampaignRow).where(
        CampaignRow.id.in_(campaign_ids),
        CampaignRow.state == CampaignState.CONFIRMING,
        CampaignRow.reason.contains(WAITS),
    )
    for row in session.scalars(confirming):
        row.reason = while_confirming(row.reason, "")
        freed.append(row.id)
    for campaign_id in freed:
        announce(session, "campaign", campaign_id=campaign_id)
