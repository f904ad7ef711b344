"""Figures of a campaign: what there are, and each as data, as a chart, and as a picture."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response

from autotune.schemas import (
    FigureKind,
    FigureName,
    FigureOffers,
    ParetoCost,
    PictureFormat,
    ScalingKind,
    figure_kind,
)
from server.api.conditional import ETAG
from server.api.dependencies import CampaignId, FiguresOf, problems
from server.figures.export import MEDIA_TYPES
from server.figures.figure import CSV
from server.figures.kinds import AnyFigure, FigureOptions
from server.figures.style import Scheme
from server.figures.trajectory import Axis

router = APIRouter(prefix="/campaigns/{campaign_id:positive}/figures", tags=["figures"])


async def _kind(
    kind: Annotated[FigureName, Path(description="What it shows.", examples=["importance"])],
) -> FigureKind:
    return figure_kind(kind)


Kind = Annotated[FigureKind, Depends(_kind)]
SchemeOf = Annotated[Scheme, Query(description="Colours for a light or a dark ground.")]
PICTURES: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The picture.",
        "content": {
            media: {"schema": {"type": "string", "format": "binary"}}
            for media in MEDIA_TYPES.values()
        },
    }
}
"""What an answer with a picture is, as the reference has it."""
TABLE: dict[str, Any] = {
    "description": "The table.",
    "content": {CSV: {"schema": {"type": "string"}}},
}


async def _options(
    by: Annotated[
        Axis, Query(description="Of the trajectory: what its horizontal axis counts.")
    ] = "trial",
    micro_batch_size: Annotated[
        int | None, Query(ge=1, description="Of the map: only strategies with it.")
    ] = None,
    num_nodes: Annotated[
        int | None, Query(ge=1, description="Of the map: only strategies on so many nodes.")
    ] = None,
    against: Annotated[
        ParetoCost | None, Query(description="Of the Pareto front: what the rate is held against.")
    ] = None,
    scaling: Annotated[
        ScalingKind | None, Query(description="Of scaling: which of the two is shown.")
    ] = None,
) -> FigureOptions:
    return FigureOptions(
        by=by,
        micro_batch_size=micro_batch_size,
        num_nodes=num_nodes,
        against=against,
        scaling=scaling,
    )


Options = Annotated[FigureOptions, Depends(_options)]


@router.get("", responses=problems(404))
def offers(campaign_id: CampaignId, figures: FiguresOf) -> FigureOffers:
    """Return all kinds of figures, and of those that the campaign has not, why."""
    return figures.offers(campaign_id)


@router.get(
    "/{kind}.vega.json",
    response_model=dict[str, Any],
    response_description="A Vega-Lite specification.",
    responses=problems(404),
)
def chart(
    request: Request,
    campaign_id: CampaignId,
    kind: Kind,
    figures: FiguresOf,
    options: Options,
    scheme: SchemeOf = "light",
) -> Response:
    """Return a figure as Vega-Lite with its rows, as wide as what it is put into; `usermeta` has
    its title, caption and table."""
    return figures.file(campaign_id, kind, options, "vega.json", scheme=scheme).response(request)


@router.get(
    "/{kind}.json",
    response_model=AnyFigure,
    response_description="The figure with the series of its kind.",
    responses=problems(404),
)
def series(
    request: Request, campaign_id: CampaignId, kind: Kind, figures: FiguresOf, options: Options
) -> Response:
    """Return a figure as data: its series, its caption, and its table."""
    return figures.file(campaign_id, kind, options, "json").response(request)


@router.get(
    "/{kind}.csv",
    response_class=Response,
    response_description="The table.",
    responses={200: TABLE | {"headers": {"ETag": ETAG}}, **problems(404)},
)
def table(
    request: Request, campaign_id: CampaignId, kind: Kind, figures: FiguresOf, options: Options
) -> Response:
    """Return the table of a figure as CSV, its columns' names first."""
    return figures.file(campaign_id, kind, options, "csv").response(request)


@router.get(
    "/{kind}.{picture}",
    response_class=Response,
    responses={200: PICTURES[200] | {"headers": {"ETag": ETAG}}, **problems(404)},
)
def picture(
    request: Request,
    campaign_id: CampaignId,
    kind: Kind,
    picture: Annotated[PictureFormat, Path(description="Format of the picture.", examples=["svg"])],
    figures: FiguresOf,
    options: Options,
    scheme: SchemeOf = "light",
) -> Response:
    """Return a figure as a picture, with its title and caption."""
    return figures.file(campaign_id, kind, options, picture, scheme=scheme).response(request)
