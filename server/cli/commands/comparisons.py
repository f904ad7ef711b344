"""Campaigns side by side."""

from __future__ import annotations

from typing import Annotated

import typer

from server.cli.options import ServiceOptions
from server.cli.output import Json, document, out
from server.cli.tables import comparisons as tables


def compare(
    campaigns: Annotated[
        list[int],
        typer.Argument(metavar="ID ID ...", help="Numbers of two or more campaigns."),
    ],
    service: ServiceOptions,
    json: Json = False,
) -> None:
    """Hold campaigns against each other: what was asked differently, and which found the best."""
    with service.client() as client:
        comparison = client.compare(*campaigns)
    if json:
        return document(comparison)
    console = out()
    console.print(comparison.sentence)
    console.print()
    console.print(tables.winners(comparison))
    console.print()
    return console.print(tables.differences(comparison))
