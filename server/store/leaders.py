"""What campaigns recommend so far, from the few trials that decide it.

Confirmed layouts rank before all others, so that where there is one its trials are enough;
otherwise the fastest trials are, one more than there are confirmations that may have failed. Where
trials stand for more nodes all are read, and what follows from them is kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.orm import Session, aliased

from autotune.recommendation import contenders
from autotune.recommendation.projected import all_contenders
from autotune.recommendation.ranking import Contender
from autotune.schemas import Campaign, StrategyShape, Trial, TrialState
from search_spaces.dimensions import TABLE
from server.store.tables import TrialRow
from server.store.trial_record import trial_of

IN_QUERY = 200
"""Layouts that one query asks for: databases bound the length of a condition."""


MOST_PROJECTED = 1000
"""Campaigns whose leader is kept, of those where it may be projected."""

EndsKey = tuple[int, frozenset[tuple[str, datetime]]]
"""A campaign, and the tokens of its trials with when they ended, which no others have."""


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


class ProjectedLeaders:
    """The leaders last asked for of campaigns with trials that stand for more nodes."""

    def __init__(self, most: int = MOST_PROJECTED) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._leaders: OrderedDict[EndsKey, Leader | None] = OrderedDict()

    def of(self, session: Session, campaigns: Sequence[Campaign]) -> dict[int, Leader]:
        """Return what the trials of these campaigns recommend, measured or projected."""
        ends: dict[int, set[tuple[str, datetime]]] = {each.id: set() for each in campaigns}
        ended = select(TrialRow.campaign_id, TrialRow.token, TrialRow.finished_at)
        for campaign_id, token, finished_at in session.execute(
            ended.where(TrialRow.campaign_id.in_(ends))
        ):
            if finished_at is not None:
                ends[campaign_id].add((token, finished_at))
        found = {each.id: self._of(session, each, frozenset(ends[each.id])) for each in campaigns}
        return {campaign_id: leader for campaign_id, leader in found.items() if leader is not None}

    def _of(
        self, session: Session, campaign: Campaign, ends: frozenset[tuple[str, datetime]]
    ) -> Leader | None:
        key = (campaign.id, ends)
        with self._lock:
            if key in self._leaders:
                self._leaders.move_to_end(key)
                return self._leaders[key]
        trials = sorted(
            _read(session, TrialRow.campaign_id == campaign.id), key=lambda trial: trial.number
        )
        ranked = all_contenders(campaign, trials)
        leader = Leader.of(ranked[0]) if ranked else None
        with self._lock:
            self._leaders[key] = leader
            while len(self._leaders) > self._most:
                self._leaders.popitem(last=False)
        return leader


_projected = ProjectedLeaders()


def leaders(
    session: Session, campaigns: Sequence[Campaign], *, with_stand_ins: Collection[int]
) -> dict[int, Leader]:
    """Return for each campaign what its trials recommend; none where none has succeeded.

    Args:
        with_stand_ins: ids of those where trials stand for more nodes.
    """
    screened = [campaign for campaign in campaigns if campaign.id in with_stand_ins]
    measured = [
        campaign
        for campaign in campaigns
        if campaign.id not in with_stand_ins and campaign.best_trial is not None
    ]
    found = _projected.of(session, screened) if screened else {}
    return found | (_measured(session, measured) if measured else {})


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
        TrialRow.strategy[d.name].as_integer() == strategy.value(d.name)
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
