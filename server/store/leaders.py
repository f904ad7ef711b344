"""What campaigns recommend so far, from the few trials that decide it.

Confirmed layouts rank before all others, so that where there is one its trials are enough;
otherwise the fastest trials are, one more than there are confirmations that may have failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.orm import Session, aliased

from autotune.recommendation import contenders
from autotune.schemas import Campaign, StrategyShape, Trial, TrialState
from server.store.tables import TrialRow
from server.store.trial_record import trial_of

IN_QUERY = 200
"""Layouts that one query asks for: databases bound the length of a condition."""


@dataclass(frozen=True, kw_only=True)
class Leader:
    """The recommended layout: the first trial of it, and its figure under the objective."""

    trial: int
    objective: float


def leaders(session: Session, campaigns: Sequence[Campaign]) -> dict[int, Leader]:
    """Return for each campaign what its trials recommend; none where none has succeeded."""
    trials: dict[int, dict[int, Trial]] = {campaign.id: {} for campaign in campaigns}
    confirmations = _read(
        session,
        and_(TrialRow.campaign_id.in_(trials), TrialRow.purpose == "confirmation"),
    )
    for trial in confirmations:
        trials[trial.campaign_id][trial.number] = trial
    for trial in _deciding(session, campaigns, trials):
        trials[trial.campaign_id][trial.number] = trial
    found = {}
    for campaign in campaigns:
        ranked = contenders(campaign, trials[campaign.id].values())
        if ranked:
            number = ranked[0].trials[0].number
            found[campaign.id] = Leader(trial=number, objective=ranked[0].rate)
    return found


def _deciding(
    session: Session,
    campaigns: Sequence[Campaign],
    confirmations: Mapping[int, Mapping[int, Trial]],
) -> list[Trial]:
    """Return trials of the search that decide, with the confirmations, which layout leads."""
    conditions: list[ColumnElement[bool]] = []
    fastest: dict[int, int] = {}
    for campaign in campaigns:
        again = confirmations[campaign.id].values()
        confirmed = {t.strategy for t in again if t.state is TrialState.OK}
        if campaign.request.min_headroom_gib:
            conditions.append(TrialRow.campaign_id == campaign.id)
        elif confirmed:
            conditions += [_is(campaign.id, strategy) for strategy in confirmed]
        elif campaign.best_trial is not None:
            fastest[campaign.id] = 1 + len(again)
    if fastest:
        conditions.append(_fastest(fastest))
    measured = and_(TrialRow.objective.is_not(None), TrialRow.purpose != "confirmation")
    parts = (conditions[i : i + IN_QUERY] for i in range(0, len(conditions), IN_QUERY))
    return [trial for part in parts for trial in _read(session, and_(measured, or_(*part)))]


def _is(campaign_id: int, strategy: StrategyShape) -> ColumnElement[bool]:
    """Return whether a trial is of a strategy, as far as numbers tell; `contenders` tells all."""
    numbers = {name: value for name, value in strategy if type(value) is int}
    same = [TrialRow.strategy[name].as_integer() == value for name, value in numbers.items()]
    return and_(TrialRow.campaign_id == campaign_id, *same)


def _fastest(counts: Mapping[int, int]) -> ColumnElement[bool]:
    """Return whether a trial is among so many of the fastest of its campaign."""
    row = aliased(TrialRow)
    place = func.row_number().over(
        partition_by=row.campaign_id, order_by=(row.objective.desc(), row.number)
    )
    ranked = (
        select(row.id, row.campaign_id, place.label("place"))
        .where(row.campaign_id.in_(counts), row.objective.is_not(None))
        .where(row.purpose != "confirmation")
        .subquery()
    )
    by_count: dict[int, list[int]] = {}
    for campaign_id, count in counts.items():
        by_count.setdefault(count, []).append(campaign_id)
    wanted = or_(
        *(
            and_(ranked.c.campaign_id.in_(ids), ranked.c.place <= count)
            for count, ids in by_count.items()
        )
    )
    return TrialRow.id.in_(select(ranked.c.id).where(wanted))


def _read(session: Session, condition: ColumnElement[bool]) -> list[Trial]:
    return [trial_of(row) for row in session.scalars(select(TrialRow).where(condition))]
