"""From campaigns to what a calibration of their machine rests on, with all that is in the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from autotune.calibration import Observation, machine_differences, observations_of
from autotune.calibration.document import observation_shape
from autotune.resolution import machine_of, transformer_of
from autotune.schemas import (
    CalibrationCreate,
    CalibrationDocument,
    Campaign,
    TrialState,
)
from autotune.schemas.calibrations import MOST_OBSERVATIONS
from autotune.trained_model import another_model
from search_spaces.errors import InvalidInput, InvalidInputs
from server.api.dependencies import LARGEST_ID
from server.auth.permissions import SERVICE, Caller, demand_seen
from server.store import NotFound
from server.store.campaigns import get_campaign
from server.store.trials import all_trials

LONGEST_LABEL = 500


@dataclass(frozen=True, kw_only=True)
class FittedCampaign:
    """One campaign to fit to, its place in the request, and what its trials have shown.

    Attributes:
        software: labels of the stacks that its trials ran on, each once.
    """

    place: int
    campaign: Campaign
    observations: Sequence[Observation]
    software: tuple[str, ...]


def document_for(
    session: Session, request: CalibrationCreate, caller: Caller = SERVICE
) -> CalibrationDocument:
    """Return what the trials of the request's campaigns have shown so far.

    Raises:
        InvalidInputs: fields `campaigns.0` and so on, `campaigns`, `software`.
    """
    campaigns, problems = _campaigns(session, request.campaigns, caller)
    problems += [problem for other in campaigns for problem in _differences(campaigns[0], other)]
    software = request.software
    if software is None and not problems:
        labels = list(dict.fromkeys(label for fitted in campaigns for label in fitted.software))
        software = (labels or [""])[0]
        if len(labels) > 1:
            reason = f"their trials ran on several stacks: {'; '.join(labels)}"
            valid = "campaigns of one stack, or a label for all of them"
            problems.append(InvalidInput("software", None, reason, valid=valid))
    observations = [observation_shape(seen) for fitted in campaigns for seen in fitted.observations]
    if not problems and len(observations) > MOST_OBSERVATIONS:
        reason = f"their trials give {len(observations)} observations"
        valid = f"campaigns with {MOST_OBSERVATIONS} or fewer"
        problems.append(InvalidInput("campaigns", request.campaigns, reason, valid=valid))
    if problems:
        raise InvalidInputs(problems)
    first = campaigns[0].campaign
    return CalibrationDocument(
        machine=first.machine,
        software=software or "",
        simulated=first.simulated,
        observations=observations,
    )


def _campaigns(
    session: Session, ids: Sequence[int], caller: Caller
) -> tuple[list[FittedCampaign], list[InvalidInput]]:
    """Return each campaign once, however often it is named, and why others cannot be used."""
    campaigns: list[FittedCampaign] = []
    problems: list[InvalidInput] = []
    for place, campaign_id in enumerate(ids):
        try:
            if campaign_id not in ids[:place]:
                campaigns.append(_campaign(session, place, campaign_id, caller))
        except InvalidInput as problem:
            problems.append(problem)
    return campaigns, problems


def _campaign(session: Session, place: int, campaign_id: int, caller: Caller) -> FittedCampaign:
    """Read one campaign; raises InvalidInput where there is none, it has nothing to say, or what it
    says is not for all."""
    field = f"campaigns.{place}"
    try:
        if campaign_id > LARGEST_ID:
            raise NotFound("campaign", campaign_id)
        demand_seen(session, caller, campaign_id)
        campaign = get_campaign(session, campaign_id)
    except NotFound as error:
        valid = "ids of campaigns, as GET /campaigns lists them"
        raise InvalidInput(field, campaign_id, error.reason, valid=valid) from error
    if campaign.private and campaign.owner is not None:
        reason = f"campaign {campaign_id} is private, and all users see a calibration"
        raise InvalidInput(field, campaign_id, reason, valid="campaigns that all users see")
    every = all_trials(session, campaign_id)
    trials = [trial for trial in every if not another_model(trial.metrics)]
    observations = observations_of(
        transformer_of(campaign.model), trials, machine=machine_of(campaign.machine)
    )
    if not observations:
        reason = f"no trial of campaign {campaign_id} has ended well or out of memory"
        valid = "campaigns with a trial that is ok or oom"
        raise InvalidInput(field, campaign_id, reason, valid=valid)
    labels = [
        ", ".join(f"{package} {version}" for package, version in sorted(trial.versions.items()))
        for trial in trials
        if trial.state is TrialState.OK and trial.versions  # one that failed often could not say
    ]
    return FittedCampaign(
        place=place,
        campaign=campaign,
        observations=observations,
        software=tuple(dict.fromkeys(label[:LONGEST_LABEL] for label in labels)),
    )


def _differences(first: FittedCampaign, other: FittedCampaign) -> Iterator[InvalidInput]:
    """Yield why two campaigns do not belong into one calibration."""
    field, known, campaign = f"campaigns.{other.place}", first.campaign, other.campaign
    machines = machine_of(known.machine), machine_of(campaign.machine)
    differing = machine_differences(machines[1], machines[0])
    if differing:
        shown = campaign.machine.name
        if known.machine.name == shown:
            shown += f" with {', '.join(differing)}"
        reason = f"it ran on {shown}, and campaign {known.id} on {known.machine.name}"
        yield InvalidInput(field, campaign.id, reason, valid="campaigns of one machine")
    if known.simulated != campaign.simulated:
        words = {True: "simulated", False: "measured"}
        reason = (
            f"it was {words[campaign.simulated]}, and campaign {known.id} {words[known.simulated]}"
        )
        yield InvalidInput(field, campaign.id, reason, valid="all simulated, or all measured")
