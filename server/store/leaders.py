"""What campaigns recommend so far, from the few trials that decide it.

Confirmed layouts rank before all others, so that where there is one its trials are enough;
otherwise the fastest trials are, one more than there are confirmations that may have failed. Where
trials stand for more nodes, who leads follows from all of them by the campaign's belief, which no
reading of rows fits: it is written down by `server.store.outcomes`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from pydantic import TypeAdapter
from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.orm import Session, aliased

from autotune.recommendation import contenders
from autotune.recommendation.ranking import Contender
from autotune.schemas import Campaign, StrategyShape, Trial, TrialState
from search_spaces.dimensions import TABLE
from server.store.tables import OutcomeRow, TrialRow, of_strategy
from server.store.trial_record import trial_of

IN_QUERY = 200
"""Layouts that one query asks for: databases bound the length of a condition."""


LEADER_PART = "leader"
"""The part of a campaign's outcome that says who leads."""

VERSION = version("autotune")
"""Outcomes that another version wrote do not count: its rules may have been others."""


@dataclass(frozen=True, kw_only=True)
class Leader:
    """The recommended layout: the first trial of it, and its figures.

    Attributes:
        objective: the figure that the campaign makes high.
        mfu: None where the machine's peak is not known.
        from_nodes: the nodes that its figures are projected from; None where they are its own.
        from_layers: the layers, where these were not all.
    """

    trial: int
    strategy: StrategyShape
    objective: float
    mfu: float | None
    from_nodes: int | None = None
    from_layers: int | None = None

    @classmethod
    def of(cls, contender: Contender) -> Leader:
        return cls(
            trial=contender.trials[0].number,
            strategy=contender.shape,
            objective=contender.rate,
            mfu=contender.metrics.mfu,
            from_nodes=contender.projected_from_nodes,
            from_layers=contender.projected_from_layers,
        )


def leaders(
    session: Session, campaigns: Sequence[Campaign], *, with_stand_ins: Collection[int]
) -> dict[int, Leader]:
    """Return for each campaign what its trials recommend; none where none has succeeded.

    Args:
        with_stand_ins: ids of those where trials stand for more nodes: what was written down of
            them last, or what was measured in full where nothing has been.
    """
    known = _written(session, with_stand_ins)
    measured = [
        campaign
        for campaign in campaigns
        if campaign.id not in known and campaign.best_trial is not None
    ]
    written = {campaign_id: leader for campaign_id, leader in known.items() if leader is not None}
    return written | (_measured(session, measured) if measured else {})


def _written(session: Session, campaign_ids: Collection[int]) -> dict[int, Leader | None]:
    """Return the leaders that have been written down of these campaigns."""
    if not campaign_ids:
        return {}
    query = select(OutcomeRow.campaign_id, OutcomeRow.document).where(
        OutcomeRow.campaign_id.in_(campaign_ids),
        OutcomeRow.part == LEADER_PART,
        OutcomeRow.version == VERSION,
    )
    return {
        campaign_id: None if document is None else _LEADERS.validate_python(document)
        for campaign_id, document in session.execute(query)
    }


_LEADERS = TypeAdapter(Leader)


def _measured(session: Session, campaigns: Sequence[Campaign]) -> dict[int, Leader]:
    """Return what trials recommend of which none stands for more nodes."""
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
            found[campaign.id] = Leader.of(ranked[0])
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
    """Return whether a trial is of a strategy, as far as numbers tell; `contenders` tells all. A
    row has no value of a dimension that is younger than it."""
    same = [
        of_strategy(d.name) == strategy.value(d.name)
        for d in TABLE
        if d.is_counted and strategy.value(d.name) != d.default
    ]
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
