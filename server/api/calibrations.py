"""Calibrations: fitted to campaigns, exported, imported, listed and deleted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Response

from autotune.calibration import Calibration
from autotune.calibration.document import calibration_of, detail_of
from autotune.resolution import machine_of
from autotune.schemas import (
    NO_CALIBRATION,
    CalibrationCreate,
    CalibrationDetail,
    CalibrationDocument,
    CalibrationSummary,
    MachineChoice,
    PredictionQuery,
    SweepQuery,
)
from autotune.schemas.calibrations import NAME
from search_spaces.errors import InvalidInput, InvalidInputs, closest
from server.api.dependencies import StoreOf, problems
from server.api.fitting import document_for
from server.auth.permissions import CallerOf
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

router = APIRouter(prefix="/calibrations", tags=["calibrations"])

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
    """Fit to the trials of campaigns that ran on one machine and software stack."""
    with store.session() as session:
        document = document_for(session, request, caller)
    return _saved(store, request.name, document, response)


@router.get("/{name}", responses=problems(404))
def read(name: Name, store: StoreOf) -> CalibrationDetail:
    """Return what a calibration rests on, and its constants before and after."""
    return detail_of(*fitted_calibration(store, name))


@router.get("/{name}/document", responses=problems(404))
def export(name: Name, store: StoreOf) -> CalibrationDocument:
    """Return the whole document, to be imported elsewhere or read by the command line."""
    with store.session() as session:
        return CalibrationDocument.model_validate(calibration_document(session, name))


@router.put(
    "/{name}", status_code=HTTPStatus.CREATED, responses={**CREATED, **problems(403, 409, 507)}
)
def import_document(
    name: FreeName, document: CalibrationDocument, response: Response, store: StoreOf
) -> CalibrationDetail:
    """Keep an exported calibration under a name that is free."""
    return _saved(store, name, document, response)


@router.delete(
    "/{name}",
    status_code=HTTPStatus.NO_CONTENT,
    response_description="It is deleted.",
    responses=problems(403, 404, 507),
)
def delete(name: Name, store: StoreOf) -> None:
    """Delete a calibration; what was predicted with it stays as it is."""
    with store.transaction() as session:
        delete_calibration(session, name)


def _saved(
    store: Store, name: str, document: CalibrationDocument, response: Response
) -> CalibrationDetail:
    """Fit the document, so that none is kept that cannot be fitted, and keep it.

    Raises:
        InvalidInputs: the name is not to be had, or the document holds what cannot be.
        Conflict: the name is taken.
    """
    faults: list[InvalidInput] = []
    if name == NO_CALIBRATION:
        reason = "predictions take this word for no calibration at all"
        faults.append(InvalidInput("name", name, reason, valid="another name"))
    if faults:
        raise InvalidInputs(faults)
    with store.session() as session:
        check_name(session, name)
    calibration = _fitted(_canonical(document.model_dump(mode="json")))
    with store.transaction() as session:
        summary = save_calibration(session, name, document)
    response.headers["Location"] = f"/api/v1/calibrations/{name}"
    return detail_of(calibration, summary)


FittedCalibration = tuple[Calibration, CalibrationSummary]


def calibration_for(
    store: Store, query: PredictionQuery | SweepQuery
) -> FittedCalibration | tuple[None, None]:
    """Return the calibration that a question names, or else the newest of its machine.

    That is one of simulated trials where the question is about these, and else one of measured
    trials. Without one, predictions rest on what is generally known.

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
    """Return a calibration that is kept, fitted again; raises NotFound."""
    with store.session() as session:
        summary = get_calibration(session, name)
        document = calibration_document(session, name)
    return _fitted(_canonical(document)), summary


def _newest(
    store: Store, machine: MachineChoice, *, simulated: bool
) -> FittedCalibration | tuple[None, None]:
    """Return the machine's newest calibration; none where there is none, or no such machine."""
    try:
        chosen = machine_of(machine)
    except (InvalidInput, InvalidInputs):
        return None, None  # refused with everything else that is wrong with the question
    with store.session() as session:
        summary = newest_of(session, chosen, simulated=simulated)
    try:
        return fitted_calibration(store, summary.name) if summary else (None, None)
    except NotFound:
        return None, None  # it was deleted in between


def _canonical(document: Mapping[str, Any]) -> str:
    return json.dumps(document, sort_keys=True)


@lru_cache(maxsize=8)
def _fitted(document: str) -> Calibration:
    """Fit, which takes a tenth of a second and, with very many observations, some seconds.

    Raises:
        InvalidInputs: what cannot have been observed.
    """
    return calibration_of(CalibrationDocument.model_validate_json(document))
