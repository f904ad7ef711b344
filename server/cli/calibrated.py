"""The calibration that a prediction is to rest on, by name or from a file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.client import Client
from autotune.schemas import NO_CALIBRATION, CalibrationDocument, CalibrationSummary
from autotune.schemas.calibrations import NAME
from autotune.validation import validated
from search_spaces.errors import InvalidInput, InvalidInputs
from server.cli.choices import named_or_file
from server.cli.options import Url

if TYPE_CHECKING:
    from autotune.calibration import Calibration

NAMES = "letters, digits, and . _ - after the first, at most 100"
BASIS = "What it rests on"


@dataclass(frozen=True, kw_only=True)
class Basis:
    """Without a calibration it is general knowledge."""

    calibration: Calibration | None = None
    summary: CalibrationSummary | None = None


@dataclass(frozen=True, kw_only=True)
class CalibrationOptions:
    """A calibration of the service, one in a file, or none."""

    calibration: Annotated[
        str | None,
        typer.Option(
            "--calibration",
            metavar="NAME|FILE|none",
            help="Trials of this machine: a name of `autotune calibrations list`, for which the "
            "service is asked, or a file of `autotune calibrations export`.  \\[default: none]",
            rich_help_panel=BASIS,
            show_default=False,
        ),
    ] = None
    url: Url = None

    def basis(self) -> Basis:
        """Asks the service for a name and no one else; raises InvalidInput(s)."""
        if self.calibration in {None, NO_CALIBRATION}:
            return Basis()
        chosen = named_or_file(self.calibration or "")
        if isinstance(chosen, Path):
            with of_calibration():
                return _basis(read_document(chosen), name=chosen.name)
        name = known_name(chosen, field="calibration")
        with Client(self.url) as client:
            document = client.calibration_document(name)
        return _basis(document, name=name)


def _basis(document: CalibrationDocument, *, name: str) -> Basis:
    from autotune.calibration.document import calibration_of, summary_of

    calibration = calibration_of(document)
    return Basis(calibration=calibration, summary=summary_of(document, name=name, created_at=None))


def known_name(name: str, *, field: str = "name") -> str:
    """The name, where a calibration can have it; raises InvalidInput."""
    if not re.fullmatch(NAME, name):
        raise InvalidInput(field, name, "no calibration can have this name", valid=NAMES)
    return name


def new_name(name: str) -> str:
    """Likewise for one that is to be made."""
    if name == NO_CALIBRATION:
        reason = "this is how predictions are told to use no calibration"
        raise InvalidInput("name", name, reason, valid="another name")
    return known_name(name)


def read_document(path: Path) -> CalibrationDocument:
    """An exported calibration; raises InvalidInput(s) for a file that is none."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(
            "file", str(path), f"the file cannot be read: {error.strerror}"
        ) from None
    except ValueError as error:
        raise InvalidInput("file", str(path), f"the file is not JSON: {error}") from None
    if not isinstance(plain, dict):
        raise InvalidInput("file", str(path), "the file holds no calibration")
    return validated(CalibrationDocument, plain)


@contextmanager
def of_calibration() -> Iterator[None]:
    """Names the fields of a file as the calibration's, where a question has others."""
    try:
        yield
    except InvalidInput as problem:
        raise _named(problem) from None
    except InvalidInputs as refusal:
        raise InvalidInputs(_named(problem) for problem in refusal.problems) from None


def _named(problem: InvalidInput) -> InvalidInput:
    field = f"calibration.{problem.field}"
    return InvalidInput(field, problem.value, problem.reason, valid=problem.valid)
