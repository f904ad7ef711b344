"""Earlier trials of a machine and program, and what each campaign keeps of them when it begins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import Session

from autotune.schemas import (
    EarlierObservation,
    ModelShape,
    StartedFrom,
    StartWorth,
    StrategyShape,
    Trial,
    TrialState,
)
from server.store.tables import CampaignRow, EarlierTrialsRow, TrialRow
from server.store.trial_record import trial_of

MOST_READ = 5000
"""Trials that are looked through when a campaign begins: with the choice among them, two thirds of
a second of one core, however many others there are."""


@dataclass(frozen=True, kw_only=True)
class PastTrial:
    """A finished trial of another campaign, without its figures.

    Attributes:
        num_layers: of the model that it ran, where fewer than all.
        versions: of what it ran with; those of its campaign's other trials where it could not say.
    """

    id: int
    campaign_id: int
    model: ModelShape
    strategy: StrategyShape
    num_layers: int | None
    versions: Mapping[str, str]
    finished_at: datetime


@dataclass(frozen=True, kw_only=True)
class TrialStack:
    """Whose trials tell of one another: those of one machine and program (`server.store.stack`).
    What was simulated never stands beside what was measured.

    Attributes:
        private_of: owners whose private campaigns tell, too: the owner alone of a campaign that is
            private itself, and nobody for one that others see.
    """

    machine_digest: str
    program: str
    simulated: bool
    private_of: tuple[str | None, ...] = ()


def newest_trial(session: Session, stack: TrialStack) -> int:
    """Return the id of the newest of a stack's trials that ended well or out of memory; 0 where
    there is none."""
    joined = select(func.max(TrialRow.id)).join(CampaignRow, CampaignRow.id == TrialRow.campaign_id)
    return session.scalar(joined.where(*_told(stack))) or 0


def past_trials(
    session: Session, campaign: CampaignRow, *, most: int = MOST_READ
) -> list[PastTrial]:
    """Return `trials_of` the stack of a campaign, its own left out."""
    stack = TrialStack(
        machine_digest=campaign.machine_digest,
        program=campaign.program,
        simulated=campaign.simulated,
        private_of=(campaign.owner,) if campaign.private else (),
    )
    return trials_of(session, stack, besides=campaign.id, most=most)


def _told(stack: TrialStack) -> list[ColumnElement[bool]]:
    """Return what trials of a stack that have shown something, joined with their campaigns, are."""
    return [
        CampaignRow.machine_digest == stack.machine_digest,
        CampaignRow.program == stack.program,
        CampaignRow.simulated == stack.simulated,
        TrialRow.simulated == stack.simulated,
        TrialRow.state.in_((TrialState.OK, TrialState.OOM)),
        or_(
            CampaignRow.private.is_(False),
            *(CampaignRow.owner.is_not_distinct_from(owner) for owner in stack.private_of),
        ),
    ]


def trials_of(
    session: Session, stack: TrialStack, *, besides: int | None = None, most: int = MOST_READ
) -> list[PastTrial]:
    """Return the newest trials of a stack that ended well or out of memory, newest first.

    Args:
        besides: the campaign whose own trials are left out.
    """
    query = (
        select(
            TrialRow.id,
            TrialRow.campaign_id,
            TrialRow.strategy,
            TrialRow.num_layers,
            TrialRow.versions,
            func.coalesce(TrialRow.finished_at, TrialRow.created_at),
        )
        .join(CampaignRow, CampaignRow.id == TrialRow.campaign_id)
        .where(*_told(stack), *([] if besides is None else [CampaignRow.id != besides]))
        .order_by(TrialRow.id.desc())
        .limit(most)
    )
    rows = session.execute(query).all()
    models = _models(session, {row[1] for row in rows})
    versions: dict[int, Mapping[str, str]] = {}
    for row in rows:
        if row.versions:
            versions.setdefault(row.campaign_id, row.versions)
    return [
        PastTrial(
            id=trial_id,
            campaign_id=campaign_id,
            model=models[campaign_id],
            strategy=StrategyShape.model_validate(strategy),
            num_layers=num_layers,
            versions=own or versions.get(campaign_id, {}),
            finished_at=finished_at,
        )
        for trial_id, campaign_id, strategy, num_layers, own, finished_at in rows
    ]


def _models(session: Session, campaign_ids: Collection[int]) -> dict[int, ModelShape]:
    query = select(CampaignRow.id, CampaignRow.model).where(CampaignRow.id.in_(campaign_ids))
    return {row[0]: ModelShape.model_validate(row[1]) for row in session.execute(query)}


def trials_by_id(session: Session, ids: Collection[int]) -> dict[int, Trial]:
    """Return these trials of whatever campaigns, in full."""
    rows = session.scalars(select(TrialRow).where(TrialRow.id.in_(ids)))
    return {row.id: trial_of(row) for row in rows}


def keep_start(
    session: Session, campaign: CampaignRow, observations: Sequence[EarlierObservation]
) -> None:
    """Write what a campaign starts from, in the transaction in which it begins."""
    campaign.started_from = [
        source.model_dump(exclude={"deleted"}) for source in sources_of(session, observations)
    ]
    if observations:
        shown = [observation.model_dump(mode="json") for observation in observations]
        session.add(EarlierTrialsRow(campaign_id=campaign.id, observations=shown))


def sources_of(session: Session, observations: Sequence[EarlierObservation]) -> list[StartedFrom]:
    """Return the campaigns whose trials these are, with how many of each, most first."""
    counts = Counter(observation.campaign_id for observation in observations)
    query = select(CampaignRow.id, CampaignRow.name).where(CampaignRow.id.in_(counts))
    names = {row[0]: row[1] for row in session.execute(query)}
    return [
        StartedFrom(campaign_id=campaign_id, name=names.get(campaign_id, ""), trials=count)
        for campaign_id, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def note_worth(campaign: CampaignRow, worth: StartWorth | None) -> None:
    """Write what the start has been worth, in the transaction of another change; None changes
    nothing."""
    if worth is not None:
        campaign.start_worth = worth.model_dump(mode="json")


def earlier_observations(session: Session, campaign_id: int) -> list[EarlierObservation]:
    """Return what a campaign has started from; nothing before it begins."""
    kept = session.get(EarlierTrialsRow, campaign_id)
    return [] if kept is None else [EarlierObservation.model_validate(o) for o in kept.observations]
