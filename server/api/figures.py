"""Figures of a campaign: the list of them, and each as data, as a chart, and as a picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response

from autotune.schemas.choices import FigureKind, FigureName, ParetoCost, ScalingKind, figure_kind
from autotune.schemas.figures import FigureForm, FigureOffers, PictureFormat
from server.api.answers import ETAG, JSON
from server.api.dependencies import AnswersOf, CampaignId, CampaignsOf, problems
from server.figures.export import MEDIA_TYPES
from server.figures.figure import CSV
from server.figures.kinds import AnyFigure, FigureOptions
from server.figures.parallel import FailedLines
from server.figures.trajectory import Axis
from server.figures.vega import Scheme

router = APIRouter(prefix="/campaigns/{campaign_id:positive}/figures", tags=["figures"])


async def _kind(
    kind: Annotated[FigureName, Path(description="What it shows.", examples=["importance"])],
) -> FigureKind:
    return figure_kind(kind)


Kind = Annotated[FigureKind, Depends(_kind)]
SchemeOf = Annotated[Scheme, Query(description="Colours for a light or a dark background.")]
PICTURES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The picture.",
        "content": {
            media: {"schema": {"type": "string", "format": "binary"}}
            for media in MEDIA_TYPES.values()
        },
    }
}
"""The response with a picture in the API reference."""
TABLE: dict[str, Any] = {
    "description": "The table.",
    "content": {CSV: {"schema": {"type": "string"}}},
}


async def _options(
    by: Annotated[Axis, Query(description="Trajectory: unit of the horizontal axis.")] = "trial",
    x: Annotated[str, Query(max_length=50, description="Map: dimension on x.")] = FigureOptions.x,
    y: Annotated[str, Query(max_length=50, description="Map: dimension on y.")] = FigureOptions.y,
    micro_batch_size: Annotated[
        int | None, Query(ge=1, description="Map: only layouts with it.")
    ] = None,
    num_nodes: Annotated[
        int | None, Query(ge=1, description="Map: only layouts on this many nodes.")
    ] = None,
    failed: Annotated[
        FailedLines, Query(description="Parallel coordinates: whether failed trials are drawn.")
    ] = "shown",
    against: Annotated[
        ParetoCost | None,
        Query(description="Pareto front: cost on the other axis."),
    ] = None,
    scaling: Annotated[ScalingKind | None, Query(description="Scaling: strong or weak.")] = None,
) -> FigureOptions:
    return FigureOptions(
        by=by,
        x=x,
        y=y,
        micro_batch_size=micro_batch_size,
        num_nodes=num_nodes,
        failed=failed,
        against=against,
        scaling=scaling,
    )


Options = Annotated[FigureOptions, Depends(_options)]


FigureFile = Callable[[FigureForm, Scheme], Response]
"""Returns the response with the requested figure as a file."""


async def _file(
    request: Request,
    campaign_id: CampaignId,
    kind: Kind,
    options: Options,
    campaigns: CampaignsOf,
    answers: AnswersOf,
) -> FigureFile:
    def response(form: FigureForm, scheme: Scheme) -> Response:
        if form == "csv":
            media_type = CSV
        else:
            media_type = JSON if form == "json" or form == "vega.json" else MEDIA_TYPES[form]

        def make(event: int) -> bytes:
            return campaigns.figure_file(
                campaign_id, event, kind, options, form=form, scheme=scheme
            )

        return answers.of(request, campaign_id, make, media_type=media_type)

    return response


FileOf = Annotated[FigureFile, Depends(_file)]


@router.get("", responses=problems(404))
def offers(campaign_id: CampaignId, campaigns: CampaignsOf) -> FigureOffers:
    """Return all kinds of figures, with the reason for those that the campaign does not have."""
    return campaigns.offers(campaign_id, campaigns.last_event(campaign_id))


@router.get(
    "/{kind}.vega.json",
    response_model=dict[str, Any],
    response_description="A Vega-Lite specification.",
    responses=problems(404),
)
def chart(file: FileOf, scheme: SchemeOf = "light") -> Response:
    """Return a figure as Vega-Lite with its data, as wide as its container; `usermeta` has its
    title, caption and table."""
    return file("vega.json", scheme)


@router.get(
    "/{kind}.json",
    response_model=AnyFigure,
    response_description="The figure with the series of its kind.",
    responses=problems(404),
)
def series(file: FileOf) -> Response:
    """Return a figure as data: its series, its caption, and its table."""
    return file("json", "light")


@router.get(
    "/{kind}.csv",
    response_class=Response,
    response_description="The table.",
    responses={200: TABLE | {"headers": {"ETag": ETAG}}, **problems(404)},
)
def table(file: FileOf) -> Response:
    """Return the table of a figure as CSV, with a header."""
    return file("csv", "light")


@router.get(
    "/{kind}.{picture}",
    response_class=Response,
    responses={200: PICTURES[200] | {"headers": {"ETag": ETAG}}, **problems(404)},
)
def picture(
    picture: Annotated[PictureFormat, Path(description="Format of the picture.", examples=["svg"])],
    file: FileOf,
    scheme: SchemeOf = "light",
) -> Response:
    """Return a figure as a picture, with its title and caption."""
    return file(picture, scheme)
