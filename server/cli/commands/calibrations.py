"""Commands for calibrations of the service: list, show, fit, export, import, delete."""

from __future__ import annotations

import json as jsonlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from search_spaces.errors import InvalidInput
from server.cli.options import ServiceOptions
from server.cli.output import Json, document, note, out

if TYPE_CHECKING:
    from autotune.schemas.calibrations import CalibrationDocument

HELP = """Fit the cost model to trials of a machine, and manage the calibrations.

Without a calibration, `autotune predict` uses the machine's data sheet and priors for its kind, and
its intervals are wide. A calibration fits the constants of the cost model (the speed of large
matrix products, the share of the network's rate that a collective reaches, the memory of a process)
to trials, corrects the remaining errors of the formulas, and narrows the intervals.

A calibration is for one machine with one software stack, and any model: cheap trials of a small
model improve predictions of a large one. Fit a new one after a software upgrade.
"""

NAME_FORM = "letters, digits, and . _ - after the first, at most 100"
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Its name, as `autotune calibrations list` shows it."),
]
NewName = Annotated[str, typer.Argument(metavar="NAME", help=f"Its name: {NAME_FORM}.")]


def known_name(name: str, *, field: str = "name") -> str:
    """Return the name if it is valid; raises InvalidInput."""
    from autotune.schemas.calibrations import NAME

    if not re.fullmatch(NAME, name):
        raise InvalidInput(field, name, "no calibration can have this name", valid=NAME_FORM)
    return name


def new_name(name: str) -> str:
    """Return the name if a new calibration may have it; raises InvalidInput."""
    from autotune.schemas.requests import NO_CALIBRATION

    if name == NO_CALIBRATION:
        reason = "this is how predictions are told to use no calibration"
        raise InvalidInput("name", name, reason, valid="another name")
    return known_name(name)


def read_document(path: Path) -> CalibrationDocument:
    """Read an exported calibration; raises InvalidInput(s) for any other file."""
    from autotune.schemas.calibrations import CalibrationDocument
    from autotune.validation import validated

    try:
        content = jsonlib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = f"the file cannot be read: {error.strerror}"
        raise InvalidInput("file", str(path), reason) from None
    except ValueError as error:
        raise InvalidInput("file", str(path), f"the file is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise InvalidInput("file", str(path), "the file holds no calibration")
    return validated(CalibrationDocument, content)


def list_(service: ServiceOptions, json: Json = False) -> None:
    """List the service's calibrations."""
    from server.cli.tables import predictions as predictions_table

    with service.client() as client:
        calibrations = client.calibrations()
    if json:
        return document(calibrations)
    if not calibrations:
        return note("no calibrations: make one with `autotune calibrations fit`")
    return out().print(predictions_table.calibrations(calibrations))


def show(name: Name, service: ServiceOptions, json: Json = False) -> None:
    """Show a calibration's trials, and each constant before and after fitting.

    Constants with the most information from the trials come first. The ± of a value is a factor:
    the true value is with 80 % probability between the value divided by it and the value times it.
    """
    from server.cli.tables import predictions as predictions_table

    with service.client() as client:
        calibration = client.calibration(known_name(name))
    if json:
        return document(calibration)
    return out().print(predictions_table.calibration(calibration))


def fit(
    name: NewName,
    service: ServiceOptions,
    campaigns: Annotated[
        list[int],
        typer.Option("--campaign", help="Campaign whose trials to use; repeatable."),
    ],
    software: Annotated[
        str | None,
        typer.Option(
            "--software",
            help="Label of the software stack.  \\[default: from the trials' versions]",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Fit the cost model to the trials of campaigns, and store it under a name.

    All campaigns must have run on one machine; their models may differ, and trials that ran out of
    memory count as well. Diverse layouts are worth more than many similar ones.
    """
    from server.cli.tables import predictions as predictions_table

    with service.client() as client:
        calibration = client.calibrate(new_name(name), campaigns, software=software)
    if json:
        return document(calibration)
    out().print(predictions_table.calibration(calibration))
    return note(f"stored; use it with `autotune predict --calibration {name} ...`")


def export(
    name: Name,
    service: ServiceOptions,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Write to this file instead of stdout."),
    ] = None,
    json: Json = False,
) -> None:
    """Print a calibration as one JSON document, for another service or for `predict`."""
    with service.client() as client:
        content = client.calibration_document(known_name(name))
    if output is None:
        return document(content)
    output.write_text(content.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return document({"written": str(output)}) if json else note(f"wrote {output}")


def import_(
    name: NewName,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="As `autotune calibrations export` wrote it.")
    ],
    service: ServiceOptions,
    json: Json = False,
) -> None:
    """Import an exported calibration under a name."""
    content = read_document(file)
    with service.client() as client:
        calibration = client.import_calibration(new_name(name), content)
    if json:
        return document(calibration)
    return note(f"stored as {name}; `autotune calibrations show {name}` shows it")


def delete(name: Name, service: ServiceOptions, json: Json = False) -> None:
    """Delete a calibration; its trials stay."""
    with service.client() as client:
        client.delete_calibration(known_name(name))
    return document({"deleted": name}) if json else note(f"calibration {name} is deleted")
