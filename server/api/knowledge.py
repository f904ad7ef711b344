"""What predictions of this service rest on: calibrations as they are kept, fitted when needed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from autotune.calibration import Calibration
from autotune.calibration.document import calibration_of
from autotune.resolution import machine_of
from autotune.schemas import NO_CALIBRATION, CalibrationDocument, CalibrationSummary, MachineChoice
from search_spaces.errors import InvalidInput, InvalidInputs, closest
from server.store import NotFound, Store
from server.store.calibrations import (
    calibration_document,
    get_calibration,
    list_calibrations,
    newest_of,
)

Knowledge = tuple[Calibration, CalibrationSummary] | tuple[None, None]
"""What is predicted with; nothing, where what is generally known has to do."""


def knowledge_of(store: Store, machine: MachineChoice, name: str | None) -> Knowledge:
    """What is asked for by name, or else the newest calibration of the machine, if there is one.

    Raises:
        InvalidInput: field `calibration`: there is none of this name.
    """
    if name == NO_CALIBRATION:
        return None, None
    return _newest(store, machine) if name is None else _named(store, name)


def kept(store: Store, name: str) -> tuple[Calibration, CalibrationSummary]:
    """Raises NotFound."""
    with store.session() as session:
        summary = get_calibration(session, name)
        document = calibration_document(session, name)
    return fitted(document), summary


def fitted(document: Mapping[str, Any]) -> Calibration:
    """Raises InvalidInputs: what cannot have been observed."""
    return _fitted(json.dumps(document, sort_keys=True))


@lru_cache(maxsize=8)
def _fitted(document: str) -> Calibration:
    """Fitting takes a tenth of a second and, with very many observations, some seconds."""
    return calibration_of(CalibrationDocument.model_validate_json(document))


def _named(store: Store, name: str) -> Knowledge:
    try:
        return kept(store, name)
    except NotFound as error:
        with store.session() as session:
            names = [summary.name for summary in list_calibrations(session)]
        valid = " or ".join([*closest(name, names), NO_CALIBRATION])
        raise InvalidInput("calibration", name, error.reason, valid=valid) from error


def _newest(store: Store, machine: MachineChoice) -> Knowledge:
    try:
        asked = machine_of(machine)
    except (InvalidInput, InvalidInputs):
        return None, None  # refused with everything else that is wrong with the question
    with store.session() as session:
        summary = newest_of(session, asked)
    try:
        return kept(store, summary.name) if summary else (None, None)
    except NotFound:
        return None, None  # it was deleted in between
