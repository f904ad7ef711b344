"""Outcomes: what follows from a campaign's ended trials, stored in parts.

The runner writes the parts after a trial's end. A reader that finds one missing or outdated
computes and writes it. A part is identified by the number of ended trials: a trial ends once and
its end never changes. No part depends on trials that still run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any, Generic, TypeVar

import structlog
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import TrialState
from autotune.schemas.explanations import Explanation
from autotune.schemas.recommendations import Recommendation
from autotune.schemas.trials import Trial
from autotune.search import ended_of
from server.campaign.best import BestSoFar, ended_trials, has_stand_ins
from server.store.errors import cause
from server.store.record import trial_of
from server.store.store import Store
from server.store.tables import CampaignRow, OutcomeRow, TrialRow

T = TypeVar("T")
VERSION = version("autotune")
"""Outcomes of other versions are ignored: their rules may differ."""
log = structlog.get_logger(__name__)


class OutcomePart(Generic[T]):
    """One part of the outcome.

    Args:
        name: of the part in its row.
        kind: type of the part.
    """

    def __init__(self, name: str, kind: Any) -> None:
        self.name = name
        self._documents: TypeAdapter[T] = TypeAdapter(kind)

    def of(
        self, store: Store, campaign_id: int, trials: Sequence[Trial], make: Callable[[], T]
    ) -> T:
        """Return the part that follows from these trials of a campaign: the stored one, or else
        what `make` returns, which is then stored."""
        ended = len(ended_of(trials))
        with store.session() as session:
            stored = self.read(session, [campaign_id]).get(campaign_id)
        if stored is not None and stored[0] == ended:
            return stored[1]
        made = make()
        self.keep(store, campaign_id, made, ended=ended)
        return made

    def written(self, store: Store, campaign_id: int, trials: Sequence[Trial]) -> T | None:
        with store.session() as session:
            stored = self.read(session, [campaign_id]).get(campaign_id)
        return stored[1] if stored is not None and stored[0] == len(ended_of(trials)) else None

    def read(self, session: Session, campaign_ids: Collection[int]) -> dict[int, tuple[int, T]]:
        """Return the stored part of each of these campaigns, with the number of ended trials that
        it follows from."""
        query = select(OutcomeRow.campaign_id, OutcomeRow.ended, OutcomeRow.document).where(
            OutcomeRow.campaign_id.in_(campaign_ids),
            OutcomeRow.part == self.name,
            OutcomeRow.version == VERSION,
        )
        found: dict[int, tuple[int, T]] = {}
        for campaign_id, ended, document in session.execute(query):
            with suppress(ValidationError):  # another state of this version wrote it
                found[campaign_id] = ended, self._documents.validate_python(document)
        return found

    def keep(self, store: Store, campaign_id: int, made: T, *, ended: int) -> None:
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
            log.warning("outcome_not_written", part=self.name, error=cause(error))

    def write(self, session: Session, campaign_id: int, made: T, *, ended: int) -> None:
        """Write the part, unless the campaign was deleted or a later one is stored."""
        campaign = select(CampaignRow.id).where(CampaignRow.id == campaign_id).with_for_update()
        if session.scalar(campaign) is None:
            return
        row = session.get(OutcomeRow, (campaign_id, self.name))
        if row is None:
            row = OutcomeRow(campaign_id=campaign_id, part=self.name, ended=0, version=VERSION)
            session.add(row)
        if row.version != VERSION or row.ended <= ended:
            row.document = self._documents.dump_python(made, mode="json")
            row.ended, row.version = ended, VERSION


BEST: OutcomePart[BestSoFar] = OutcomePart("best", BestSoFar)
"""The best layout and the improvements."""
RECOMMENDATION: OutcomePart[Recommendation | None] = OutcomePart(
    "recommendation", Recommendation | None
)
"""The recommendation of the ended trials, without launch files; None while none has succeeded."""
EXPLANATION: OutcomePart[Explanation] = OutcomePart("explanation", Explanation)
"""Why the recommended layout won, or why nothing ran."""


def best_so_far(session: Session, campaigns: Sequence[Campaign]) -> dict[int, BestSoFar]:
    """Return the best of each campaign: the stored one, or the best of its trials if some have
    ended since. No model is fitted: for trials on fewer nodes or with fewer layers, the stored one
    counts even if it is outdated, and without one only full trials count."""
    stored = BEST.read(session, [campaign.id for campaign in campaigns])
    found = {}
    for campaign in campaigns:
        ended, best = stored.get(campaign.id, (0, BestSoFar()))
        projected = campaign.id in stored and has_stand_ins(campaign.screening)
        if ended != ended_trials(campaign) and not projected:
            best = BestSoFar.of(campaign, _full_trials(session, campaign.id))
        found[campaign.id] = best
    return found


def _full_trials(session: Session, campaign_id: int) -> list[Trial]:
    query = select(TrialRow).where(
        TrialRow.campaign_id == campaign_id,
        TrialRow.state != TrialState.PENDING,
        TrialRow.stands_for_nodes.is_(None),
    )
    return [trial_of(row) for row in session.scalars(query.order_by(TrialRow.number))]
