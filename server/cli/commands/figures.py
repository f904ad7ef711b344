"""Figures of campaigns, as tables, pictures or data, and campaigns side by side."""

from __future__ import annotations

import json as jsons
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args

import typer

from autotune.files import write_whole
from autotune.schemas.choices import FigureName, FigureScheme, ParetoCost, ProgressAxis, ScalingKind
from search_spaces.errors import InvalidInput
from server.cli.options import CampaignId, OptionGroup, ServiceOptions, option
from server.cli.output import Json, document, note, out, text

if TYPE_CHECKING:
    from autotune.client.campaign import CampaignHandle


@dataclass(frozen=True, kw_only=True)
class FigureFlags(OptionGroup):
    """Options that restrict some kinds."""

    PANEL: ClassVar[str] = "What it shows"

    by: Literal["trial", "time", "node_hours"] | None = option(
        "--by", "trajectory: the horizontal axis.", default="trial"
    )
    micro_batch_size: int | None = option(
        "--mbs", "map: only strategies with this micro-batch size.", min=1
    )
    num_nodes: int | None = option(
        "--num-nodes", "map: only strategies with this number of nodes.", min=1
    )
    against: ParetoCost | None = option(
        "--against", "pareto_front: the metric to compare the rate with."
    )
    scaling: ScalingKind | None = option("--scaling", "scaling: strong or weak scaling.")


def plot(
    campaign: CampaignId,
    choice: FigureFlags,
    service: ServiceOptions,
    kind: Annotated[
        FigureName | None,
        typer.Option("--kind", help="Kind of figure; without it, list the kinds."),
    ] = None,
    to_file: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Write the figure into this file, in the format of its extension: .svg, "
            ".png, .pdf, .csv (table), .json (data) or .vega.json (Vega-Lite). Without it, print "
            "a table.",
        ),
    ] = None,
    scheme: Annotated[
        FigureScheme, typer.Option("--scheme", help="Colours for a light or dark background.")
    ] = "light",
    json: Json = False,
) -> None:
    """Print or draw a figure of a campaign, as a table, a picture or data.

    Without --kind, list the campaign's figures, and why others are missing. Every figure has one
    sentence that summarises it.
    """
    from server.cli.tables import campaigns as campaigns_table

    if kind is None and to_file is not None:
        raise InvalidInput("kind", None, "choose the figure to write", valid=", ".join(kinds()))
    with service.client() as client:
        handle = client.campaign(campaign)
        if kind is None:
            offers = handle.figures()
            return document(offers) if json else out().print(campaigns_table.offers(offers))
        written = to_file and _written(handle, kind, to_file, scheme, choice.given())
        figure = handle.figure(kind, **choice.given())
    if json:
        return document(figure | ({"written": str(written)} if written else {}))
    if written:
        text(figure["caption"])
        return note(f"wrote {written}")
    return out().print(campaigns_table.figure_data(figure))


def kinds() -> tuple[str, ...]:
    """Return the names of all kinds."""
    return get_args(FigureName)


def _written(
    handle: CampaignHandle,
    kind: FigureName,
    target: Path,
    scheme: FigureScheme,
    options: dict[str, Any],
) -> Path:
    """Write a figure in the format of the file's suffix; raises InvalidInput for an unknown one."""
    from autotune.client.plot import figure_form
    from autotune.schemas.figures import FigureTable
    from server.figures.figure import as_csv

    form = figure_form(target, field="to_file")
    if form == "vega.json":
        chart = handle.chart(kind, scheme=scheme, **options)
        content = jsons.dumps(chart, ensure_ascii=False).encode()
    elif form == "json":
        data = handle.figure(kind, **options)
        content = jsons.dumps(data, indent=2, ensure_ascii=False).encode()
    elif form == "csv":
        content = as_csv(FigureTable.model_validate(handle.figure(kind, **options)["table"]))
    else:
        content = handle.picture(kind, form, scheme=scheme, **options)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, content)
    return target


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
