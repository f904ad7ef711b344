"""Earlier trials on a machine with a program, and the observations with which a campaign starts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import Session

from autotune.calibration import observations_of
from autotune.calibration.history import (
    EarlierTrial,
    most_informative,
    observation_shape,
    weight_of,
)
from autotune.measurement.metrics import another_model
from autotune.schemas.calibrations import EarlierObservation
from autotune.schemas.campaigns import StartedFrom, StartWorth
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial
from search_spaces.fields import checked
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from server.store.campaigns import campaign_row
from server.store.record import trial_of
from server.store.tables import CampaignRow, EarlierTrialsRow, TrialRow

SECONDS_PER_DAY = 86400.0
MOST_READ = 5000
"""Trials read when a campaign starts. Reading and choosing among them takes two thirds of a second
of one core, however many others there are."""


@dataclass(frozen=True, kw_only=True)
class PastTrial:
    """A finished trial of another campaign, without its metrics.

    Attributes:
        num_layers: the number of layers that it ran with; None for all.
        versions: of its software; the versions of its campaign's other trials if it reported none.
    """

    id: int
    campaign_id: int
    model: Transformer
    strategy: Strategy
    num_layers: int | None
    versions: Mapping[str, str]
    finished_at: datetime


@dataclass(frozen=True, kw_only=True)
class TrialStack:
    """A machine and a program (`server.campaign.start`), whose trials are comparable. Simulated
    trials are never compared with measured ones.

    Attributes:
        private_of: owners whose private campaigns are included: the owner of a campaign that is
            private itself; none for a campaign that others see.
    """

    machine_digest: str
    program: str
    simulated: bool
    private_of: tuple[str | None, ...] = ()


def newest_trial(session: Session, stack: TrialStack) -> int:
    """Return the id of a stack's newest trial that succeeded or ran out of memory; 0 if there is
    none."""
    joined = select(func.max(TrialRow.id)).join(CampaignRow, CampaignRow.id == TrialRow.campaign_id)
    return session.scalar(joined.where(*_informative(stack))) or 0


def past_trials(
    session: Session, campaign: CampaignRow, *, most: int = MOST_READ
) -> list[PastTrial]:
    """Return `trials_of` a campaign's stack, without its own trials."""
    stack = TrialStack(
        machine_digest=campaign.machine_digest,
        program=campaign.program,
        simulated=campaign.simulated,
        private_of=(campaign.owner,) if campaign.private else (),
    )
    return trials_of(session, stack, besides=campaign.id, most=most)


def _informative(stack: TrialStack) -> list[ColumnElement[bool]]:
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
    """Return the newest trials of a stack that succeeded or ran out of memory, newest first.

    Args:
        besides: id of a campaign whose trials are excluded.
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
        .where(*_informative(stack), *([] if besides is None else [CampaignRow.id != besides]))
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
            strategy=checked(Strategy, strategy),
            num_layers=num_layers,
            versions=own or versions.get(campaign_id, {}),
            finished_at=finished_at,
        )
        for trial_id, campaign_id, strategy, num_layers, own, finished_at in rows
    ]


def _models(session: Session, campaign_ids: Collection[int]) -> dict[int, Transformer]:
    query = select(CampaignRow.id, CampaignRow.model).where(CampaignRow.id.in_(campaign_ids))
    return {row[0]: checked(Transformer, row[1], prefix="model") for row in session.execute(query)}


def trials_by_id(session: Session, ids: Collection[int]) -> dict[int, Trial]:
    rows = session.scalars(select(TrialRow).where(TrialRow.id.in_(ids)))
    return {row.id: trial_of(row) for row in rows}


def starting_observations(
    session: Session, campaign_id: int, space: SearchSpace, *, now: datetime
) -> list[EarlierObservation]:
    past = past_trials(session, campaign_row(session, campaign_id))
    return most_informative_of(session, past, space, now=now)


def most_informative_of(
    session: Session, past: Sequence[PastTrial], space: SearchSpace, *, now: datetime
) -> list[EarlierObservation]:
    """Return the observations of those past trials that are most informative about a space, without
    trials whose trainer reported another model size than was requested."""
    given = [
        EarlierTrial(
            transformer=trial.model.with_layers(trial.num_layers),
            strategy=trial.strategy,
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
        for observation in observations_of(past[place].model, [trial], machine=space.machine)
    ]


def keep_start(
    session: Session, campaign: CampaignRow, observations: Sequence[EarlierObservation]
) -> None:
    """Store the observations with which a campaign starts, in the transaction that starts it."""
    campaign.started_from = [
        source.model_dump(exclude={"deleted"}) for source in sources_of(session, observations)
    ]
    if observations:
        shown = [observation.model_dump(mode="json") for observation in observations]
        session.add(EarlierTrialsRow(campaign_id=campaign.id, observations=shown))


def sources_of(session: Session, observations: Sequence[EarlierObservation]) -> list[StartedFrom]:
    """Return the campaigns that the observations come from, with their counts, most first."""
    counts = Counter(observation.campaign_id for observation in observations)
    query = select(CampaignRow.id, CampaignRow.name).where(CampaignRow.id.in_(counts))
    names = {row[0]: row[1] for row in session.execute(query)}
    return [
        StartedFrom(campaign_id=campaign_id, name=names.get(campaign_id, ""), trials=count)
        for campaign_id, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]


def note_worth(campaign: CampaignRow, worth: StartWorth | None) -> None:
    if worth is not None:
        campaign.start_worth = worth.model_dump(mode="json")


def earlier_observations(session: Session, campaign_id: int) -> list[EarlierObservation]:
    row = session.get(EarlierTrialsRow, campaign_id)
    return [] if row is None else [EarlierObservation.model_validate(o) for o in row.observations]
