"""Campaigns side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.schemas.choices import FigureScheme, ProgressAxis
from server.cli.options import ServiceOptions
from server.cli.output import Json, document, note, out


def compare(
    campaigns: Annotated[
        list[int],
        typer.Argument(metavar="ID ID ...", help="Numbers of two or more campaigns."),
    ],
    service: ServiceOptions,
    to_file: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Draw the best so far of each into this file, in the format of its extension: "
            ".svg, .png, .pdf, .csv (table), .vega.json (Vega-Lite), or .json (data).",
        ),
    ] = None,
    by: Annotated[
        ProgressAxis, typer.Option("--by", help="With --out: the horizontal axis.")
    ] = "node_hours",
    scheme: Annotated[
        FigureScheme,
        typer.Option("--scheme", help="With --out: colours for a light or dark background."),
    ] = "light",
    json: Json = False,
) -> None:
    """Compare campaigns: differing settings, results, and which found the best."""
    from autotune.client.plot import figure_form
    from server.cli.tables import campaigns as campaigns_table
    from server.figures.comparison import progress_table

    if to_file is not None:
        figure_form(to_file, field="to_file")  # before any request or drawing
    with service.client() as client:
        comparison = client.compare(*campaigns)
        if to_file is not None:
            to_file.parent.mkdir(parents=True, exist_ok=True)
            client.plot_comparison(*campaigns, by=by, scheme=scheme).save(to_file)
            note(f"wrote {to_file}")
    if json:
        return document(comparison)
    console = out()
    console.print(comparison.sentence)
    console.print()
    console.print(campaigns_table.winners(comparison))
    console.print()
    console.print(campaigns_table.figure_rows(progress_table(comparison)))
    console.print()
    return console.print(campaigns_table.differences(comparison))
