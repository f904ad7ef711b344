"""How many campaigns and trials there are, by how they stand: counted again where something has
happened since it was last asked."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.store.events import last_event_id, newest_since
from server.store.tables import CampaignRow, TrialRow

AT_ONCE = 500
"""Campaigns that one statement names."""

NOT_STARTED = "created"
"""How a pending trial stands that nothing runs or queues yet."""


@dataclass(frozen=True, kw_only=True)
class CampaignCounts:
    """One campaign's trials.

    Attributes:
        trials: by state; in the place of `pending` by phase, or `created` where there is none.
        node_hours: of those that have ended.
    """

    trials: Mapping[str, int] = field(default_factory=dict)
    node_hours: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ServiceCounts:
    """All campaigns together; each key begins with the evaluator."""

    campaigns: Mapping[tuple[str, str], int]
    trials: Mapping[tuple[str, str], int]
    node_hours: Mapping[str, float]


class KeptCounts:
    """What was last counted of each campaign. A trial counts from an index alone: two thousand take
    less than a millisecond, and ended campaigns nothing. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last_event = 0
        self._known: dict[int, CampaignCounts] = {}

    def of(self, session: Session) -> ServiceCounts:
        """Return the counts as they stand now."""
        with self._lock:
            return self._of(session)

    def _of(self, session: Session) -> ServiceCounts:
        newest = last_event_id(session)  # first: what happens later is counted twice, never missed
        changed = set(newest_since(session, self._last_event)) if self._last_event else set()
        query = select(CampaignRow.id, CampaignRow.state, CampaignRow.evaluator)
        standing = {row.id: row for row in session.execute(query)}
        unknown = [key for key in standing if key in changed or key not in self._known]
        kept = {key: counts for key, counts in self._known.items() if key in standing}
        self._known = kept | _counted(session, unknown)
        self._last_event = newest
        campaigns: Counter[tuple[str, str]] = Counter()
        trials: Counter[tuple[str, str]] = Counter()
        node_hours: dict[str, float] = {}
        for key, row in standing.items():
            campaigns[row.evaluator, row.state] += 1
            for state, number in self._known[key].trials.items():
                trials[row.evaluator, state] += number
            spent = node_hours.get(row.evaluator, 0.0)
            node_hours[row.evaluator] = spent + self._known[key].node_hours
        return ServiceCounts(campaigns=campaigns, trials=trials, node_hours=node_hours)


def _counted(session: Session, campaign_ids: Collection[int]) -> dict[int, CampaignCounts]:
    """Return what there is of each of these campaigns."""
    trials: dict[int, Counter[str]] = {key: Counter() for key in campaign_ids}
    node_hours = dict.fromkeys(campaign_ids, 0.0)
    for some in _parts(list(campaign_ids)):
        query = (
            select(
                TrialRow.campaign_id,
                TrialRow.state,
                TrialRow.phase,
                func.count(),
                func.sum(TrialRow.node_hours),
            )
            .where(TrialRow.campaign_id.in_(some))
            .group_by(TrialRow.campaign_id, TrialRow.state, TrialRow.phase)
        )
        for key, state, phase, number, spent in session.execute(query):
            stands = (phase or NOT_STARTED) if state == "pending" else state
            trials[key][stands] += number
            node_hours[key] += spent or 0.0
    return {
        key: CampaignCounts(trials=trials[key], node_hours=node_hours[key]) for key in campaign_ids
    }


def _parts(keys: list[int]) -> Iterator[list[int]]:
    for start in range(0, len(keys), AT_ONCE):
        yield keys[start : start + AT_ONCE]
