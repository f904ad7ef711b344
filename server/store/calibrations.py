"""Stored calibrations: saved once under a name, read and deleted, never changed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from autotune.calibration import machine_figures
from autotune.calibration.document import summary_of
from autotune.resolution import machine_of
from autotune.schemas.calibrations import CalibrationDocument, CalibrationSummary
from search_spaces.machine import Machine
from server.store.errors import Conflict, NotFound
from server.store.record import record_of
from server.store.tables import CalibrationRow


def save_calibration(
    session: Session, name: str, document: CalibrationDocument
) -> CalibrationSummary:
    """Store a document in a writing session; raises Conflict if the name is taken."""
    summary = summary_of(document, name=name, created_at=datetime.now(UTC))
    row = CalibrationRow(
        **summary.model_dump(),
        figures=machine_figures(machine_of(document.machine)),
        document=document.model_dump(mode="json"),
    )
    session.add(row)
    try:
        session.flush()
    except IntegrityError as error:
        raise _taken(name) from error
    return summary


def check_name(session: Session, name: str) -> None:
    """Raise Conflict if the name is taken."""
    query = select(CalibrationRow.id).where(CalibrationRow.name == name)
    if session.scalars(query).first() is not None:
        raise _taken(name)


def _taken(name: str) -> Conflict:
    reason = f"there is a calibration {name} already"
    return Conflict("name", name, reason, valid="another name, or delete that one first")


def list_calibrations(session: Session) -> list[CalibrationSummary]:
    """Return all calibrations, newest first."""
    rows = session.scalars(select(CalibrationRow).order_by(CalibrationRow.id.desc()))
    return [_summary(row) for row in rows]


def get_calibration(session: Session, name: str) -> CalibrationSummary:
    """Return one calibration's summary; raises NotFound."""
    return _summary(_row(session, name))


def calibration_document(session: Session, name: str) -> Mapping[str, Any]:
    """Return the document as JSON; raises NotFound."""
    return _row(session, name).document


def delete_calibration(session: Session, name: str) -> None:
    """Delete a calibration in a writing session; raises NotFound."""
    session.delete(_row(session, name))


def newest_of(session: Session, machine: Machine, *, simulated: bool) -> CalibrationSummary | None:
    """Return the newest calibration of a machine with this name and these figures, of simulated or
    of measured trials."""
    query = (
        select(CalibrationRow)
        .where(CalibrationRow.machine == machine.name, CalibrationRow.simulated == simulated)
        .order_by(CalibrationRow.id.desc())
    )
    figures = machine_figures(machine)
    rows = (row for row in session.scalars(query) if row.figures == figures)
    row = next(rows, None)
    return None if row is None else _summary(row)


def _row(session: Session, name: str) -> CalibrationRow:
    query = select(CalibrationRow).where(CalibrationRow.name == name)
    row = session.scalars(query).one_or_none()
    if row is None:
        raise NotFound("calibration", name)
    return row


def _summary(row: CalibrationRow) -> CalibrationSummary:
    return record_of(CalibrationSummary, row)
