"""Calibrations that the service keeps: list, show, fit, export, import, delete."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from server.cli import calibration_tables as tables
from server.cli.calibrated import known_name, new_name, read_document
from server.cli.options import ServiceOptions
from server.cli.output import Json, document, note, out

HELP = """Fit the cost model to trials of a machine, and keep what came of it.

Without a calibration, `autotune predict` knows of a machine what its data sheet and experience
with its kind say, and its intervals are wide. A calibration moves the constants of the model (how
fast large matrix products run, what share of the network's rate a collective reaches, what memory
a process holds) to what trials showed, corrects what the formulas leave over, and narrows the
intervals as far as the trials allow.

It is for one machine with one software stack, and there for any model: cheap trials of a small
model tell about a large one, too. After an upgrade of the software fit another.
"""

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Its name, as `autotune calibrations list` shows it."),
]
NewName = Annotated[
    str, typer.Argument(metavar="NAME", help="Its name: letters, digits, and . _ - between them.")
]


def list_(service: ServiceOptions, json: Json = False) -> None:
    """List the calibrations of the service."""
    with service.client() as client:
        found = client.calibrations()
    if json:
        return document(found)
    if not found:
        return note("no calibrations: make one with `autotune calibrations fit`")
    return out().print(tables.calibrations(found))


def show(name: Name, service: ServiceOptions, json: Json = False) -> None:
    """Show what a calibration rests on, and each constant before and after.

    Those come first that the trials say most about. Beside each value stands ± as a factor: the
    true value lies with 80 % between the value divided by it and the value times it.
    """
    with service.client() as client:
        found = client.calibration(known_name(name))
    if json:
        return document(found)
    return out().print(tables.calibration(found))


def fit(
    name: NewName,
    service: ServiceOptions,
    campaign: Annotated[
        list[int],
        typer.Option("--campaign", help="Take its trials; may be given several times."),
    ],
    software: Annotated[
        str | None,
        typer.Option(
            "--software",
            help="The stack they ran on, in your words.  \\[default: from the trials' versions]",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Fit the cost model to the trials of campaigns, and keep it under a name.

    All must have run on one machine; their models may differ, and trials that ran out of memory
    teach as well. Layouts that differ in many ways tell more than many that are alike.
    """
    with service.client() as client:
        found = client.calibrate(new_name(name), campaign, software=software)
    if json:
        return document(found)
    out().print(tables.calibration(found))
    return note(f"kept; use it with `autotune predict --calibration {name} ...`")


def export(
    name: Name,
    service: ServiceOptions,
    output: Annotated[
        Path | None,
        typer.Option("--output", help="Write it into this file instead of to stdout."),
    ] = None,
    json: Json = False,
) -> None:
    """Print a calibration as one JSON document, for another service or for `predict`."""
    with service.client() as client:
        found = client.calibration_document(known_name(name))
    if output is None:
        return document(found)
    output.write_text(found.model_dump_json(indent=2) + "\n", encoding="utf-8")
    if json:
        return document({"written": str(output)})
    return note(f"wrote {output}")


def import_(
    name: NewName,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="As `autotune calibrations export` wrote it.")
    ],
    service: ServiceOptions,
    json: Json = False,
) -> None:
    """Keep an exported calibration under a name."""
    content = read_document(file)
    with service.client() as client:
        found = client.import_calibration(new_name(name), content)
    if json:
        return document(found)
    return note(f"kept as {name}; look at it with `autotune calibrations show {name}`")


def delete(name: Name, service: ServiceOptions, json: Json = False) -> None:
    """Delete a calibration; the trials it was fitted to stay."""
    with service.client() as client:
        client.delete_calibration(known_name(name))
    if json:
        return document({"deleted": name})
    return note(f"calibration {name} is deleted")
