"""The reasons of campaigns that wait for a runner."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from autotune.schemas.choices import CampaignState
from server.campaign.scheduling import WAITS, while_confirming
from server.store.announcements import announce
from server.store.leases import is_free
from server.store.runners import CampaignKind, LivingRunner, living_runners
from server.store.store import Store
from server.store.tables import CampaignRow

SAYING_WHY = (CampaignState.QUEUED, CampaignState.RUNNING)
"""In these states the reason is only what the campaign waits for; while it confirms, the reason
also says why its search ended."""


def reason_to_wait(kind: CampaignKind, runners: Sequence[LivingRunner]) -> str:
    """Return why no runner works on campaigns of a kind; empty if one is about to."""
    takers = [each for each in runners if each.offer.takes(kind)]
    if any(not each.full for each in takers):
        return ""
    if takers:
        return (
            "waits for room: "
            + ("the runner that takes it works" if len(takers) == 1 else "all runners work")
            + " on as many campaigns as may be at the same time (AUTOTUNE_MOST_CAMPAIGNS)"
        )
    if kind.own_runner:
        return (
            f"waits for a runner of {kind.owner or 'its owner'} that takes {kind.evaluator} "
            "trials, and none runs (autotune runner --as-me)"
        )
    if not runners:
        return "waits for a runner, and none runs (autotune runner)"
    return f"waits for a runner that takes {kind.evaluator} trials, and none that runs does"


def note_waiting(store: Store, *, silent_s: float) -> None:
    """Update the reasons of waiting campaigns; whoever claims one removes it.

    Args:
        silent_s: seconds without a heartbeat after which a runner counts as stopped.
    """
    free = is_free() & CampaignRow.state.in_((*SAYING_WHY, CampaignState.CONFIRMING))
    kind = (CampaignRow.evaluator, CampaignRow.owner, CampaignRow.own_runner)
    with store.session() as session:
        columns = (CampaignRow.id, CampaignRow.state, CampaignRow.reason, *kind)
        waiting = session.execute(select(*columns).where(free))
        found = waiting.all()
        runners = living_runners(session, silent_s=silent_s) if found else []
    reasons = {
        row.id: reason_to_wait(
            CampaignKind(evaluator=row.evaluator, owner=row.owner, own_runner=row.own_runner),
            runners,
        )
        for row in found
    }
    for row in found:
        if row.state == CampaignState.CONFIRMING and reasons[row.id]:
            reasons[row.id] = while_confirming(row.reason, reasons[row.id])
    changed = {row.id: reasons[row.id] for row in found if reasons[row.id] not in {"", row.reason}}
    if not changed:
        return
    with store.transaction() as session:
        for campaign_id, reason in changed.items():
            waiting_row = update(CampaignRow).where(CampaignRow.id == campaign_id, free)
            if session.execute(
                waiting_row.values(reason=reason)
                .returning(CampaignRow.id)
                .execution_options(synchronize_session=False)
            ).first():
                announce(session, "campaign", campaign_id=campaign_id)


def forget_waiting(session: Session, campaign_ids: Sequence[int]) -> None:
    """Remove the reasons to wait of campaigns that a runner has claimed."""
    waiting = update(CampaignRow).where(
        CampaignRow.id.in_(campaign_ids),
        CampaignRow.state.in_(SAYING_WHY),
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
