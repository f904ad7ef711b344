"""Requests for calibrations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from autotune.client.calls.call import Call, encoded, get, post, reader
from autotune.schemas import (
    CalibrationCreate,
    CalibrationDetail,
    CalibrationDocument,
    CalibrationSummary,
)
from autotune.validation import validated


def calibrations() -> Call[list[CalibrationSummary]]:
    read = reader(list[CalibrationSummary])
    return Call(method="GET", path="/calibrations", read=read)


def calibrate(
    name: str, campaigns: Iterable[int], *, software: str | None
) -> Call[CalibrationDetail]:
    fields = {"name": name, "campaigns": list(campaigns), "software": software}
    return post("/calibrations", validated(CalibrationCreate, fields), CalibrationDetail)


def calibration(name: str) -> Call[CalibrationDetail]:
    return get(_calibration(name), CalibrationDetail)


def document(name: str) -> Call[CalibrationDocument]:
    return get(f"{_calibration(name)}/document", CalibrationDocument)


def import_document(
    name: str, document: CalibrationDocument | Mapping[str, Any]
) -> Call[CalibrationDetail]:
    if not isinstance(document, CalibrationDocument):
        document = validated(CalibrationDocument, document)
    return Call(
        method="PUT",
        path=_calibration(name),
        body=encoded(document),
        read=reader(CalibrationDetail),
    )


def delete(name: str) -> Call[None]:
    return Call(method="DELETE", path=_calibration(name), read=lambda _: None)


def _calibration(name: str) -> str:
    return f"/calibrations/{quote(name, safe='')}"
