"""What is read from the store, as wire models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, select
from sqlalchemy.orm import Session

from autotune.schemas import (
    FAILURES,
    Campaign,
    CampaignPage,
    CampaignState,
    Event,
    Trial,
    TrialState,
)
from server.store import cursors
from server.store.errors import NotFound
from server.store.tables import CampaignRow, EventRow, TrialRow
from server.store.wire import Tally, campaign_of, trial_of


def get_campaign(session: Session, campaign_id: int) -> Campaign:
    """Raises NotFound."""
    row = campaign_row(session, campaign_id)
    return campaign_of(row, tallies(session, [row.id])[row.id])


def campaign_row(session: Session, campaign_id: int, *, for_update: bool = False) -> CampaignRow:
    """Raises NotFound."""
    row = session.get(CampaignRow, campaign_id, with_for_update=for_update or None)
    if row is None:
        raise NotFound("campaign", campaign_id)
    return row


def list_campaigns(
    session: Session,
    state: CampaignState | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> CampaignPage:
    """Campaigns, newest first."""
    query = select(CampaignRow).order_by(CampaignRow.id.desc()).limit(limit + 1)
    if state is not None:
        query = query.where(CampaignRow.state == state)
    if cursor is not None:
        query = query.where(CampaignRow.id < cursors.decode(cursor, parts=1)[0])
    rows = session.scalars(query).all()
    following = cursors.encode([rows[limit - 1].id]) if len(rows) > limit else None
    return CampaignPage(items=campaigns_of(session, rows[:limit]), next=following)


def campaigns_of(session: Session, rows: Sequence[CampaignRow]) -> list[Campaign]:
    sums = tallies(session, [row.id for row in rows])
    return [campaign_of(row, sums[row.id]) for row in rows]


def tallies(session: Session, campaign_ids: Iterable[int]) -> dict[int, Tally]:
    """By campaign; an empty tally for one without trials."""
    ids = list(campaign_ids)
    found = {campaign_id: Tally() for campaign_id in ids}
    for row in session.execute(_counts(ids)).mappings():
        counts = dict(row)
        campaign_id = counts.pop("campaign_id")
        found[campaign_id] = Tally(**counts)
    for campaign_id, number, objective in session.execute(_best(ids)):
        best = {"best_trial": number, "best_objective": objective}
        found[campaign_id] = replace(found[campaign_id], **best)
    return found


def _counts(ids: Sequence[int]) -> Select[*tuple[Any, ...]]:
    """The columns are named as the fields of a tally."""
    return (
        select(
            TrialRow.campaign_id,
            _count(TrialRow.purpose == "search").label("trials"),
            _count(TrialRow.state == "pending").label("pending"),
            _count((TrialRow.state == "pending") & (TrialRow.phase == "waiting")).label("waiting"),
            _count(TrialRow.state.in_(FAILURES)).label("failures"),
            _count(TrialRow.purpose == "confirmation").label("confirmations"),
            func.coalesce(func.sum(TrialRow.node_hours), 0.0).label("node_hours"),
        )
        .where(TrialRow.campaign_id.in_(ids))
        .group_by(TrialRow.campaign_id)
    )


def _count(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.coalesce(func.sum(case((condition, 1), else_=0)), 0)


def _best(ids: Sequence[int]) -> Select[*tuple[Any, ...]]:
    """The trial with the highest objective of each campaign; the earlier one of equals."""
    place = func.row_number().over(
        partition_by=TrialRow.campaign_id, order_by=(TrialRow.objective.desc(), TrialRow.number)
    )
    ranked = (
        select(TrialRow.campaign_id, TrialRow.number, TrialRow.objective, place.label("place"))
        .where(TrialRow.campaign_id.in_(ids), TrialRow.objective.is_not(None))
        .subquery()
    )
    columns = ranked.c
    return select(columns.campaign_id, columns.number, columns.objective).where(columns.place == 1)


def get_trial(session: Session, campaign_id: int, number: int) -> Trial:
    """Raises NotFound, naming the campaign where it is that which does not exist."""
    query = select(TrialRow).where(TrialRow.campaign_id == campaign_id, TrialRow.number == number)
    row = session.scalars(query).one_or_none()
    if row is None:
        campaign_row(session, campaign_id)
        reason = f"campaign {campaign_id} has no trial {number}"
        raise NotFound("trial", number, reason=reason)
    return trial_of(row)


def all_trials(session: Session, campaign_id: int) -> list[Trial]:
    """In the order of their numbers."""
    query = select(TrialRow).where(TrialRow.campaign_id == campaign_id).order_by(TrialRow.number)
    return [trial_of(row) for row in session.scalars(query)]


def reasons_to_wait(session: Session, campaign_id: int) -> dict[str, int]:
    """How many trials wait for nodes, by why; "" where that is not known."""
    query = (
        select(TrialRow.phase_reason, func.count())
        .where(
            TrialRow.campaign_id == campaign_id,
            TrialRow.state == TrialState.PENDING,
            TrialRow.phase == "waiting",
        )
        .group_by(TrialRow.phase_reason)
    )
    return {row[0]: row[1] for row in session.execute(query)}


def last_event_id(session: Session) -> int:
    """0 where there is none yet."""
    return session.scalar(select(func.coalesce(func.max(EventRow.id), 0))) or 0


def newest_events(session: Session, campaign_ids: Iterable[int]) -> dict[int, int]:
    """By campaign: the id of its last event, 0 without one; deleted campaigns are left out.

    Whatever changes in a campaign or its trials has an event: what was read after this stands
    until the id grows.
    """
    newest = select(func.max(EventRow.id)).where(EventRow.campaign_id == CampaignRow.id)
    query = select(CampaignRow.id, func.coalesce(newest.scalar_subquery(), 0))
    found = session.execute(query.where(CampaignRow.id.in_(list(campaign_ids))))
    return {row[0]: row[1] for row in found}


def profile_of(session: Session, campaign_id: int) -> dict[str, Any] | None:
    """The cluster's profile as it stood when the campaign was created; raises NotFound."""
    return campaign_row(session, campaign_id).profile


def events_since(
    session: Session, after_id: int, campaign_id: int | None = None, limit: int = 200
) -> list[Event]:
    """Events with a higher id, oldest first, each with its campaign or trial as it stands now."""
    query = select(EventRow).where(EventRow.id > after_id).order_by(EventRow.id).limit(limit)
    if campaign_id is not None:
        query = query.where(EventRow.campaign_id == campaign_id)
    rows = session.scalars(query).all()
    campaigns = _campaigns_named(session, [row for row in rows if row.kind != "trial"])
    trials = _trials_named(session, [row for row in rows if row.kind == "trial"])
    return [
        Event.model_validate(
            {
                "id": row.id,
                "campaign_id": row.campaign_id,
                "kind": row.kind,
                "campaign": campaigns.get(row.campaign_id) if row.kind != "trial" else None,
                "trial": trials.get((row.campaign_id, row.trial_number)),
            }
        )
        for row in rows
    ]


def _campaigns_named(session: Session, rows: Sequence[EventRow]) -> dict[int, Campaign]:
    ids = {row.campaign_id for row in rows}
    found = session.scalars(select(CampaignRow).where(CampaignRow.id.in_(ids))).all() if ids else []
    return {campaign.id: campaign for campaign in campaigns_of(session, found)}


def _trials_named(
    session: Session, rows: Sequence[EventRow]
) -> dict[tuple[int, int | None], Trial]:
    found: dict[tuple[int, int | None], Trial] = {}
    for campaign_id in {row.campaign_id for row in rows}:
        numbers = {row.trial_number for row in rows if row.campaign_id == campaign_id}
        query = select(TrialRow).where(
            TrialRow.campaign_id == campaign_id, TrialRow.number.in_(numbers)
        )
        found |= {(row.campaign_id, row.number): trial_of(row) for row in session.scalars(query)}
    return found
