"""Outcomes: what follows from a campaign's ended trials, stored in parts.

The runner writes the parts after a trial's end. A reader that finds one missing or outdated
computes and writes it. A part is identified by the number of ended trials: a trial ends once and
its end never changes. No part depends on trials that still run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

import structlog
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import and_, func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from autotune.recommendation import all_contenders
from autotune.schemas import Campaign, Explanation, FewNodes, Recommendation, Trial, TrialState
from autotune.search import CampaignBelief, ended_of
from server.store.campaigns import get_campaign, profile_of
from server.store.errors import NotFound
from server.store.failures import cause
from server.store.history import earlier_observations
from server.store.leaders import LEADER_PART, VERSION, Leader
from server.store.start import belief_of_campaign, versions_of
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
        document = self._documents.dump_python(made, mode="json")
        try:
            with store.transaction() as session:
                self._write(session, campaign_id, document, ended=ended)
        except DBAPIError as error:
            log.warning("outcome_not_written", part=self._name, error=cause(error))

    def _row(self, session: Session, campaign_id: int) -> OutcomeRow | None:
        row = session.get(OutcomeRow, (campaign_id, self._name))
        return row if row is not None and row.version == VERSION else None

    def _write(self, session: Session, campaign_id: int, document: Any, *, ended: int) -> None:
        """Write the part, unless the campaign is gone or a later one is there."""
        campaign = select(CampaignRow.id).where(CampaignRow.id == campaign_id).with_for_update()
        if session.scalar(campaign) is None:
            return
        row = session.get(OutcomeRow, (campaign_id, self._name))
        if row is None:
            row = OutcomeRow(campaign_id=campaign_id, part=self._name, ended=0, version=VERSION)
            session.add(row)
        if row.version != VERSION or row.ended <= ended:
            row.document, row.ended, row.version = document, ended, VERSION


LEADER: OutcomePart[Leader | None] = OutcomePart(LEADER_PART, Leader | None)
"""The recommended layout where trials stand for more nodes or layers; elsewhere the rows tell."""
RECOMMENDATION: OutcomePart[Recommendation | None] = OutcomePart(
    "recommendation", Recommendation | None
)
"""The recommendation of the ended trials, without launch files; None while none has succeeded."""
EXPLANATION: OutcomePart[Explanation] = OutcomePart("explanation", Explanation)
"""Why the recommended layout won, or why nothing ran."""


def refresh_leaders(store: Store, campaign_ids: Collection[int]) -> None:
    """Write down who leads in those of the campaigns in which layouts are projected, where trials
    have ended since that was done: a fit of the cost model, for which no connection is held."""
    with store.session() as session:
        old = _with_old_leaders(session, campaign_ids)
    for campaign_id in old:
        with suppress(NotFound), store.session() as session:  # deleted meanwhile
            campaign, trials = get_campaign(session, campaign_id), all_trials(session, campaign_id)
            profile = profile_of(session, campaign_id)
            kept = earlier_observations(session, campaign_id)
        belief = belief_of_campaign(
            campaign, versions=versions_of(trials, kept=kept), profile=profile, kept=kept
        )
        leader = leader_of(campaign, trials, belief)
        LEADER.keep(store, campaign_id, leader, ended=len(ended_of(trials)))


def leader_of(campaign: Campaign, trials: Sequence[Trial], belief: CampaignBelief) -> Leader | None:
    """Return the layout that these trials recommend; None where there is none."""
    ranked = all_contenders(campaign, trials, belief=belief)
    return Leader.of(ranked[0]) if ranked else None


def _with_old_leaders(session: Session, campaign_ids: Collection[int]) -> list[int]:
    ended = (
        select(func.count())
        .where(TrialRow.campaign_id == CampaignRow.id, TrialRow.state != TrialState.PENDING)
        .scalar_subquery()
    )
    query = (
        select(CampaignRow.id, CampaignRow.screening, ended, OutcomeRow.ended)
        .outerjoin(
            OutcomeRow,
            and_(
                OutcomeRow.campaign_id == CampaignRow.id,
                OutcomeRow.part == LEADER_PART,
                OutcomeRow.version == VERSION,
            ),
        )
        .where(CampaignRow.id.in_(campaign_ids), CampaignRow.screening.is_not(None))
    )
    return [
        row[0]
        for row in session.execute(query)
        if has_stand_ins(FewNodes.model_validate(row.screening)) and row[2] != (row[3] or 0)
    ]


def has_stand_ins(screening: FewNodes | None) -> bool:
    """Return whether trials run on fewer nodes, or with fewer layers, than what they stand for."""
    return screening is not None and (screening.nodes or screening.layers) is not None
