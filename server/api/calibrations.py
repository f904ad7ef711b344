"""Calibrations: fitted to campaigns, exported, imported, listed and deleted."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from autotune.calibration.document import detail_of
from autotune.schemas import (
    NO_CALIBRATION,
    CalibrationCreate,
    CalibrationDetail,
    CalibrationDocument,
    CalibrationSummary,
)
from autotune.schemas.calibrations import NAME
from search_spaces.errors import InvalidInput, InvalidInputs
from server.api.access import StoreOf, problems
from server.api.fitting import document_for
from server.api.knowledge import fitted, kept
from server.store import Store
from server.store.calibrations import (
    calibration_document,
    check_name,
    delete_calibration,
    list_calibrations,
    save_calibration,
)

router = APIRouter(prefix="/calibrations", tags=["calibrations"])

Name = Annotated[str, Path(pattern=NAME, description="of the calibration")]
CREATED: dict[int | str, dict[str, Any]] = {
    201: {
        "model": CalibrationDetail,
        "headers": {"Location": {"schema": {"type": "string"}, "description": "its address"}},
    }
}


@router.get("", responses=problems())
def listing(store: StoreOf) -> list[CalibrationSummary]:
    """All of them, newest first."""
    with store.session() as session:
        return list_calibrations(session)


@router.post("", status_code=HTTPStatus.CREATED, responses={**CREATED, **problems(403, 409, 507)})
def create(request: CalibrationCreate, response: Response, store: StoreOf) -> CalibrationDetail:
    """Fit to the trials of campaigns that ran on one machine and software stack."""
    with store.session() as session:
        document = document_for(session, request)
    return _saved(store, request.name, document, response)


@router.get("/{name}", responses=problems(404))
def read(name: Name, store: StoreOf) -> CalibrationDetail:
    """What it rests on, and its constants before and after."""
    return detail_of(*kept(store, name))


@router.get("/{name}/document", responses=problems(404))
def export(name: Name, store: StoreOf) -> CalibrationDocument:
    """All of it, to be imported elsewhere or read by the command line."""
    with store.session() as session:
        return CalibrationDocument.model_validate(calibration_document(session, name))


@router.put(
    "/{name}", status_code=HTTPStatus.CREATED, responses={**CREATED, **problems(403, 409, 507)}
)
def import_document(
    name: Name, document: CalibrationDocument, response: Response, store: StoreOf
) -> CalibrationDetail:
    """Keep an exported calibration under a name that is free."""
    return _saved(store, name, document, response)


@router.delete("/{name}", status_code=HTTPStatus.NO_CONTENT, responses=problems(403, 404, 507))
def delete(name: Name, store: StoreOf) -> None:
    """For good; what was predicted with it stays as it is."""
    with store.transaction() as session:
        delete_calibration(session, name)


def _saved(
    store: Store, name: str, document: CalibrationDocument, response: Response
) -> CalibrationDetail:
    """Fitted first, so that nothing is kept that cannot be.

    Raises:
        InvalidInputs: the name is not to be had, or the document holds what cannot be.
        Conflict: the name is taken.
    """
    faults = list(_unusable(name, document))
    if faults:
        raise InvalidInputs(faults)
    with store.session() as session:
        check_name(session, name)
    calibration = fitted(document.model_dump(mode="json"))
    with store.transaction() as session:
        summary = save_calibration(session, name, document)
    response.headers["Location"] = f"/api/v1/calibrations/{name}"
    return detail_of(calibration, summary)


def _unusable(name: str, document: CalibrationDocument) -> Iterator[InvalidInput]:
    if name == NO_CALIBRATION:
        reason = "predictions take this word for no calibration at all"
        yield InvalidInput("name", name, reason, valid="another name")
    texts = {"software": document.software, "machine.name": document.machine.name}
    for field, text in texts.items():
        if "\0" in text:
            reason = "it has a NUL character, which no database keeps in a text"
            yield InvalidInput(field, text, reason, valid="a text without it")
