"""Outcomes: what follows from a campaign's ended trials, stored in parts.

The runner writes the parts after a trial's end. A reader that finds one missing or outdated
computes and writes it. A part is identified by the number of ended trials: a trial ends once and
its end never changes. No part depends on trials that still run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

import structlog
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import and_, func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from autotune.schemas import Explanation, Recommendation, Trial, TrialState
from autotune.search import ended_of
from server.campaign.best import BestSoFar, has_stand_ins
from server.campaign.start import belief_of_campaign, versions_of
from server.store.best import BEST_PART, VERSION
from server.store.campaigns import Tally, campaign_of, campaign_row
from server.store.errors import NotFound
from server.store.failures import cause
from server.store.history import earlier_observations
from server.store.store import Store
from server.store.tables import CampaignRow, OutcomeRow, TrialRow
from server.store.trials import all_trials

T = TypeVar("T")
log = structlog.get_logger(__name__)


class OutcomePart(Generic[T]):
    """One part of what follows from the ends of trials.

    Args:
        name: of the part in its row.
        kind: type of the part.
    """

    def __init__(self, name: str, kind: Any) -> None:
        self._name = name
        self._documents: TypeAdapter[T] = TypeAdapter(kind)

    def of(
        self, store: Store, campaign_id: int, trials: Sequence[Trial], make: Callable[[], T]
    ) -> T:
        """Return the part that follows from these trials of a campaign: the stored one, or else
        what `make` returns, which is then stored."""
        stored = self._stored(store, campaign_id, trials)
        if stored is not None:
            return stored[0]
        made = make()
        self.keep(store, campaign_id, made, ended=len(ended_of(trials)))
        return made

    def written(self, store: Store, campaign_id: int, trials: Sequence[Trial]) -> T | None:
        """Return the part if it is stored."""
        stored = self._stored(store, campaign_id, trials)
        return None if stored is None else stored[0]

    def _stored(self, store: Store, campaign_id: int, trials: Sequence[Trial]) -> tuple[T] | None:
        with store.session() as session:
            row = self._row(session, campaign_id)
        if row is not None and row.ended == len(ended_of(trials)):
            with suppress(ValidationError):  # another state of this version wrote it
                return (self._documents.validate_python(row.document),)
        return None

    def keep(self, store: Store, campaign_id: int, made: T, *, ended: int) -> None:
        """Store the part; if that fails, whoever needs it computes it again."""
        self.keep_all(store, {campaign_id: (made, ended)})

    def keep_all(self, store: Store, made: Mapping[int, tuple[T, int]]) -> None:
        """Store the part of each of these campaigns, with the number of ended trials."""
        if not made:
            return
        try:
            with store.transaction() as session:
                for campaign_id, (part, ended) in sorted(made.items()):
                    self.write(session, campaign_id, part, ended=ended)
        except DBAPIError as error:
            log.warning("outcome_not_written", part=self._name, error=cause(error))

    def _row(self, session: Session, campaign_id: int) -> OutcomeRow | None:
        row = session.get(OutcomeRow, (campaign_id, self._name))
        return row if row is not None and row.version == VERSION else None

    def write(self, session: Session, campaign_id: int, made: T, *, ended: int) -> None:
        """Write the part, unless the campaign is gone or a later one is there."""
        campaign = select(CampaignRow.id).where(CampaignRow.id == campaign_id).with_for_update()
        if session.scalar(campaign) is None:
            return
        row = session.get(OutcomeRow, (campaign_id, self._name))
        if row is None:
            row = OutcomeRow(campaign_id=campaign_id, part=self._name, ended=0, version=VERSION)
            session.add(row)
        if row.version != VERSION or row.ended <= ended:
            row.document = self._documents.dump_python(made, mode="json")
            row.ended, row.version = ended, VERSION


BEST: OutcomePart[BestSoFar] = OutcomePart(BEST_PART, BestSoFar)
"""The best layout and the improvements."""
RECOMMENDATION: OutcomePart[Recommendation | None] = OutcomePart(
    "recommendation", Recommendation | None
)
"""The recommendation of the ended trials, without launch files; None while none has succeeded."""
EXPLANATION: OutcomePart[Explanation] = OutcomePart("explanation", Explanation)
"""Why the recommended layout won, or why nothing ran."""


def refresh_best(store: Store, campaign_ids: Collection[int]) -> None:
    """Store the best of those campaigns whose stored one is missing or outdated: of an earlier
    version, after a crash, or where layouts are projected. That fits the cost model, for which no
    connection is held."""
    with store.session() as session:
        outdated = _with_outdated_best(session, campaign_ids)
    made: dict[int, tuple[BestSoFar, int]] = {}
    for campaign_id in outdated:
        with suppress(NotFound), store.session() as session:  # deleted meanwhile
            row, kept = (
                campaign_row(session, campaign_id),
                earlier_observations(session, campaign_id),
            )
            campaign, trials = campaign_of(row, Tally()), all_trials(session, campaign_id)
            profile = row.profile
        belief = None
        if has_stand_ins(campaign.screening):
            versions = versions_of(trials, kept=kept)
            belief = belief_of_campaign(campaign, versions=versions, profile=profile, kept=kept)
        best = BestSoFar.of(campaign, trials, belief=belief)
        made[campaign_id] = best, len(ended_of(trials))
    BEST.keep_all(store, made)


def _with_outdated_best(session: Session, campaign_ids: Collection[int]) -> list[int]:
    ended = (
        select(func.count())
        .where(TrialRow.campaign_id == CampaignRow.id, TrialRow.state != TrialState.PENDING)
        .scalar_subquery()
    )
    stored = and_(
        OutcomeRow.campaign_id == CampaignRow.id,
        OutcomeRow.part == BEST_PART,
        OutcomeRow.version == VERSION,
    )
    query = select(CampaignRow.id).outerjoin(OutcomeRow, stored)
    outdated = ended != func.coalesce(OutcomeRow.ended, 0)
    return list(session.scalars(query.where(CampaignRow.id.in_(campaign_ids), outdated)))
