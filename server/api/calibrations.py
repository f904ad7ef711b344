"""Calibrations: fitted to campaigns, exported, imported, listed and deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Response
from sqlalchemy.orm import Session

from autotune.calibration import Calibration, Observation, machine_differences, observations_of
from autotune.calibration.document import calibration_of, detail_of, observation_shape
from autotune.resolution import machine_of, transformer_of
from autotune.schemas.calibrations import (
    MOST_OBSERVATIONS,
    NAME,
    CalibrationCreate,
    CalibrationDetail,
    CalibrationDocument,
    CalibrationSummary,
)
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import TrialState
from autotune.schemas.predictions import SweepQuery
from autotune.schemas.requests import NO_CALIBRATION, PredictionQuery
from autotune.schemas.shapes import MachineChoice
from autotune.trained_model import another_model
from search_spaces.errors import InvalidInput, InvalidInputs, closest
from server.api.dependencies import LARGEST_ID, StoreOf, problems
from server.auth.permissions import Caller, CallerOf, demand_seen
from server.programs import is_simulated
from server.store import NotFound, Store
from server.store.calibrations import (
    calibration_document,
    check_name,
    delete_calibration,
    get_calibration,
    list_calibrations,
    newest_of,
    save_calibration,
)
from server.store.campaigns import get_campaign
from server.store.trials import all_trials

router = APIRouter(prefix="/calibrations", tags=["calibrations"])

LONGEST_LABEL = 500

Name = Annotated[
    str, Path(pattern=NAME, description="Name of the calibration.", examples=["frontier-trials"])
]
FreeName = Annotated[
    str, Path(pattern=NAME, description="A name that is free.", examples=["frontier-imported"])
]
FIT: dict[str, Any] = {
    "trials of one campaign": {"value": {"name": "frontier-trials", "campaigns": [1]}}
}
CREATED: dict[int | str, dict[str, Any]] = {
    201: {
        "model": CalibrationDetail,
        "headers": {"Location": {"schema": {"type": "string"}, "description": "Its address."}},
    }
}


@router.get("", response_description="All calibrations.", responses=problems())
def listing(store: StoreOf) -> list[CalibrationSummary]:
    """List all calibrations, newest first."""
    with store.session() as session:
        return list_calibrations(session)


@router.post("", status_code=HTTPStatus.CREATED, responses={**CREATED, **problems(403, 409, 507)})
def create(
    request: Annotated[CalibrationCreate, Body(openapi_examples=FIT)],
    response: Response,
    store: StoreOf,
    caller: CallerOf,
) -> CalibrationDetail:
    """Fit a calibration to the trials of campaigns on one machine and software stack."""
    with store.session() as session:
        document = document_for(session, request, caller)
    return _saved(store, request.name, document, response)


@router.get("/{name}", responses=problems(404))
def read(name: Name, store: StoreOf) -> CalibrationDetail:
    """Return a calibration with its sources, and its constants before and after the fit."""
    return detail_of(*fitted_calibration(store, name))


@router.get("/{name}/document", responses=problems(404))
def export(name: Name, store: StoreOf) -> CalibrationDocument:
    """Return the whole document, for import elsewhere or for the command line."""
    with store.session() as session:
        return CalibrationDocument.model_validate(calibration_document(session, name))


@router.put(
    "/{name}", status_code=HTTPStatus.CREATED, responses={**CREATED, **problems(403, 409, 507)}
)
def import_document(
    name: FreeName, document: CalibrationDocument, response: Response, store: StoreOf
) -> CalibrationDetail:
    """Store an exported calibration under a free name."""
    return _saved(store, name, document, response)


@router.delete(
    "/{name}",
    status_code=HTTPStatus.NO_CONTENT,
    response_description="It is deleted.",
    responses=problems(403, 404, 507),
)
def delete(name: Name, store: StoreOf) -> None:
    """Delete a calibration; predictions made with it are not affected."""
    with store.transaction() as session:
        delete_calibration(session, name)


def _saved(
    store: Store, name: str, document: CalibrationDocument, response: Response
) -> CalibrationDetail:
    """Store a document, after fitting it, so that none is stored that cannot be fitted.

    Raises:
        InvalidInput: the name is reserved.
        InvalidInputs: the document contains impossible observations.
        Conflict: the name is taken.
    """
    if name == NO_CALIBRATION:
        reason = "predictions take this word for no calibration at all"
        raise InvalidInput("name", name, reason, valid="another name")
    with store.session() as session:
        check_name(session, name)
    calibration = _fitted(_canonical(document.model_dump(mode="json")))
    with store.transaction() as session:
        summary = save_calibration(session, name, document)
    response.headers["Location"] = f"/api/v1/calibrations/{name}"
    return detail_of(calibration, summary)


@dataclass(frozen=True, kw_only=True)
class FittedCampaign:
    """A campaign to fit, its index in the request, and the observations of its trials.

    Attributes:
        software: distinct labels of the software stacks of its trials.
    """

    place: int
    campaign: Campaign
    observations: Sequence[Observation]
    software: tuple[str, ...]


def document_for(
    session: Session, request: CalibrationCreate, caller: Caller
) -> CalibrationDocument:
    """Return the observations of the trials of the request's campaigns as a document.

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
    """Return the distinct campaigns, and why others cannot be used."""
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
    """Return one campaign; raises InvalidInput if it does not exist, has no observations, or is
    private."""
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
        if trial.state is TrialState.OK and trial.versions  # failed ones may lack versions
    ]
    return FittedCampaign(
        place=place,
        campaign=campaign,
        observations=observations,
        software=tuple(dict.fromkeys(label[:LONGEST_LABEL] for label in labels)),
    )


def _differences(first: FittedCampaign, other: FittedCampaign) -> Iterator[InvalidInput]:
    """Yield why two campaigns cannot share a calibration."""
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


FittedCalibration = tuple[Calibration, CalibrationSummary]


def calibration_for(
    store: Store, query: PredictionQuery | SweepQuery
) -> FittedCalibration | tuple[None, None]:
    """Return the calibration that a query names, or the newest of its machine, fitted to simulated
    trials if the query is about these. Without one, predictions use the priors.

    Raises:
        InvalidInput: field `calibration`: there is none of this name.
    """
    name = query.calibration
    if name == NO_CALIBRATION:
        return None, None
    if name is None:
        return _newest(store, query.machine, simulated=is_simulated(query))
    try:
        return fitted_calibration(store, name)
    except NotFound as error:
        with store.session() as session:
            names = [summary.name for summary in list_calibrations(session)]
        valid = " or ".join([*closest(name, names), NO_CALIBRATION])
        raise InvalidInput("calibration", name, error.reason, valid=valid) from error


def fitted_calibration(store: Store, name: str) -> FittedCalibration:
    """Return a stored calibration, fitted again; raises NotFound."""
    with store.session() as session:
        summary = get_calibration(session, name)
        document = calibration_document(session, name)
    return _fitted(_canonical(document)), summary


def _newest(
    store: Store, machine: MachineChoice, *, simulated: bool
) -> FittedCalibration | tuple[None, None]:
    """Return the machine's newest calibration, if there is one."""
    try:
        chosen = machine_of(machine)
    except (InvalidInput, InvalidInputs):
        return None, None  # reported with all other errors of the query
    with store.session() as session:
        summary = newest_of(session, chosen, simulated=simulated)
    try:
        return fitted_calibration(store, summary.name) if summary else (None, None)
    except NotFound:
        return None, None  # deleted meanwhile


def _canonical(document: Mapping[str, Any]) -> str:
    return json.dumps(document, sort_keys=True)


@lru_cache(maxsize=8)
def _fitted(document: str) -> Calibration:
    """Fit a document, which takes a tenth of a second, or some seconds with many observations.

    Raises:
        InvalidInputs: it contains impossible observations.
    """
    return calibration_of(CalibrationDocument.model_validate_json(document))
