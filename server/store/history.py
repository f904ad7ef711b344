"""Earlier trials of a machine and program, and what each campaign keeps of them when it begins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import Session

from autotune.calibration import observations_of
from autotune.calibration.document import observation_shape
from autotune.calibration.history import EarlierTrial, most_informative, weight_of
from autotune.resolution import strategy_of, transformer_of
from autotune.schemas import (
    EarlierObservation,
    ModelShape,
    StartedFrom,
    StartWorth,
    StrategyShape,
    Trial,
    TrialState,
)
from autotune.trained_model import another_model
from search_spaces.space import SearchSpace
from server.store.campaigns import campaign_row
from server.store.tables import CampaignRow, EarlierTrialsRow, TrialRow
from server.store.trial_record import trial_of

SECONDS_PER_DAY = 86400.0
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


def telling_trials(
    session: Session, campaign_id: int, space: SearchSpace, *, now: datetime
) -> list[EarlierObservation]:
    """Return what those earlier trials have shown that say most of a campaign's space."""
    past = past_trials(session, campaign_row(session, campaign_id))
    return telling_of(session, past, space, now=now)


def telling_of(
    session: Session, past: Sequence[PastTrial], space: SearchSpace, *, now: datetime
) -> list[EarlierObservation]:
    """Return what those of the past trials have shown that say most of a space; nothing of one
    whose trainer counts another model than it was to train."""
    models = {shape: transformer_of(shape) for shape in {trial.model for trial in past}}
    given = [
        EarlierTrial(
            transformer=models[trial.model].with_layers(trial.num_layers),
            strategy=strategy_of(trial.strategy),
            versions=trial.versions,
            age_days=max(0.0, (now - trial.finished_at).total_seconds() / SECONDS_PER_DAY),
        )
        for trial in past
    ]
    among = next((trial.versions for trial in given if trial.versions), {})
    weights = [weight_of(trial.versions, among=among, age_days=trial.age_days) for trial in given]
    places = most_informative(
        given, weights, transformer=space.transformer, lattice=space.lattice()
    )
    trials = trials_by_id(session, [past[place].id for place in places])
    return [
        EarlierObservation(
            **observation_shape(observation).model_dump(),
            campaign_id=past[place].campaign_id,
            versions=dict(given[place].versions),
            age_days=given[place].age_days,
        )
        for place in places
        if (trial := trials.get(past[place].id)) is not None and not another_model(trial.metrics)
        for observation in observations_of(
            models[past[place].model], [trial], machine=space.machine
        )
    ]


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
