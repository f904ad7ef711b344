"""How many campaigns and trials a service has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.store.tables import CampaignRow, TrialRow


@dataclass(frozen=True, kw_only=True)
class ServiceCounts:
    """Numbers of all campaigns and trials by evaluator and state. Pending trials are counted by
    phase, or as `created` without one."""

    campaigns: Mapping[tuple[str, str], int]
    trials: Mapping[tuple[str, str], int]


def service_counts(session: Session) -> ServiceCounts:
    """Return the counts as of now. Trials are counted in an index: 250,000 take 70 ms."""
    campaigns = select(CampaignRow.evaluator, CampaignRow.state, func.count())
    of_campaigns = campaigns.group_by(CampaignRow.evaluator, CampaignRow.state)
    kind = (TrialRow.campaign_id, TrialRow.state, TrialRow.phase)
    # Summed by campaign first: the index has that order, and fewer rows are joined.
    sums = select(*kind, func.count().label("number")).group_by(*kind).subquery()
    joined = select(CampaignRow.evaluator, sums.c.state, sums.c.phase).add_columns(
        func.sum(sums.c.number)
    )
    of_trials = joined.join(sums, sums.c.campaign_id == CampaignRow.id).group_by(
        CampaignRow.evaluator, sums.c.state, sums.c.phase
    )
    trials: Counter[tuple[str, str]] = Counter()
    for evaluator, state, phase, number in session.execute(of_trials):
        trials[evaluator, (phase or "created") if state == "pending" else state] += int(number)
    return ServiceCounts(
        campaigns={(row[0], row[1]): row[2] for row in session.execute(of_campaigns)},
        trials=trials,
    )
