"""The best layout of each campaign, as it is stored after each end of a trial."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.metadata import version

from pydantic import TypeAdapter
from sqlalchemy import select
from sqlalchemy.orm import Session

from autotune.schemas import Campaign, Trial, TrialState
from server.campaign.best import BestSoFar, ended_trials, has_stand_ins
from server.store.tables import OutcomeRow, TrialRow
from server.store.trial_record import trial_of

BEST_PART = "best"
"""The part of a campaign's outcome that holds it."""

VERSION = version("autotune")
"""Outcomes that another version wrote do not count: its rules may have been others."""


_DOCUMENTS = TypeAdapter(BestSoFar)


def best_so_far(session: Session, campaigns: Sequence[Campaign]) -> dict[int, BestSoFar]:
    """Return the best of each campaign: the stored one, or, if trials have ended since, what the
    trials come to. No model is fitted: where trials stand for more nodes the stored one counts,
    however old, or else the full trials alone."""
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
            found[campaign.id] = _DOCUMENTS.validate_python(document)
        else:
            found[campaign.id] = BestSoFar.of(campaign, list(_full(session, campaign.id)))
    return found


def _full(session: Session, campaign_id: int) -> Iterable[Trial]:
    query = select(TrialRow).where(
        TrialRow.campaign_id == campaign_id,
        TrialRow.state != TrialState.PENDING,
        TrialRow.stands_for_nodes.is_(None),
    )
    return map(trial_of, session.scalars(query.order_by(TrialRow.number)))
