"""The best of each campaign, which is stored with each end of a trial."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.metadata import version

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from autotune.schemas import Campaign, Trial, TrialState
from server.campaign.best import BestSoFar, ended_trials, has_stand_ins
from server.store.tables import OutcomeRow, TrialRow
from server.store.trial_record import trial_of

BEST_PART = "best"
"""Name of the outcome's part."""

VERSION = version("autotune")
"""Outcomes of other versions are ignored: their rules may differ."""

_DOCUMENTS = TypeAdapter(BestSoFar)


def best_so_far(session: Session, campaigns: Sequence[Campaign]) -> dict[int, BestSoFar]:
    """Return the best of each campaign: the stored one, or that of its trials if some have ended
    since. No model is fitted: for trials on fewer nodes or with fewer layers, the stored one counts
    even if it is outdated, and without one the full trials alone."""
    query = select(OutcomeRow.campaign_id, OutcomeRow.ended, OutcomeRow.document).where(
        OutcomeRow.campaign_id.in_([campaign.id for campaign in campaigns]),
        OutcomeRow.part == BEST_PART,
        OutcomeRow.version == VERSION,
    )
    stored = {row[0]: (row[1], row[2]) for row in session.execute(query)}
    found = {}
    for campaign in campaigns:
        ended, document = stored.get(campaign.id, (0, {}))
        if ended == ended_trials(campaign) or (document and has_stand_ins(campaign.screening)):
            with suppress(ValidationError):  # another state of this version wrote it
                found[campaign.id] = _DOCUMENTS.validate_python(document)
        if campaign.id not in found:
            found[campaign.id] = BestSoFar.of(campaign, list(_full(session, campaign.id)))
    return found


def _full(session: Session, campaign_id: int) -> Iterable[Trial]:
    query = select(TrialRow).where(
        TrialRow.campaign_id == campaign_id,
        TrialRow.state != TrialState.PENDING,
        TrialRow.stands_for_nodes.is_(None),
    )
    return map(trial_of, session.scalars(query.order_by(TrialRow.number)))
