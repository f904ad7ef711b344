"""Figures of a campaign: what there are, and each as data, as a chart, and as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response

from autotune.schemas import (
    FigureForm,
    FigureKind,
    FigureName,
    FigureOffers,
    ParetoCost,
    PictureFormat,
    ScalingKind,
    figure_kind,
)
from server.api.answers import Answers
from server.api.campaign_cache import CampaignCache
from server.api.conditional import ETAG, JSON
from server.api.dependencies import AnswersOf, CampaignId, CampaignsOf, problems
from server.figures.export import MEDIA_TYPES
from server.figures.figure import CSV
from server.figures.kinds import AnyFigure, FigureOptions
from server.figures.trajectory import Axis
from server.figures.vega import Scheme

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


@dataclass(frozen=True, kw_only=True)
class FigureFiles:
    """Sends figures as files."""

    campaigns: CampaignCache
    answers: Answers

    def of(
        self,
        request: Request,
        campaign_id: int,
        kind: FigureKind,
        options: FigureOptions,
        *,
        form: FigureForm,
        scheme: Scheme = "light",
    ) -> Response:
        """Return the response to a request.

        Raises:
            NotFound: there is no such campaign, or it has no such figure.
            InvalidInput: it has no such figure with these options.
            OSError: a picture could not be drawn.
        """

        def make(event: int) -> bytes:
            return self.campaigns.figure_file(
                campaign_id, event, kind, options, form=form, scheme=scheme
            )

        return self.answers.of(request, campaign_id, make, media_type=_media_type(form))


def _media_type(form: FigureForm) -> str:
    if form == "csv":
        return CSV
    return JSON if form == "json" or form == "vega.json" else MEDIA_TYPES[form]


async def _files(campaigns: CampaignsOf, answers: AnswersOf) -> FigureFiles:
    return FigureFiles(campaigns=campaigns, answers=answers)


FilesOf = Annotated[FigureFiles, Depends(_files)]


@router.get("", responses=problems(404))
def offers(campaign_id: CampaignId, campaigns: CampaignsOf) -> FigureOffers:
    """Return all kinds of figures, and of those that the campaign has not, why."""
    return campaigns.offers(campaign_id, campaigns.last_event(campaign_id))


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
    files: FilesOf,
    options: Options,
    scheme: SchemeOf = "light",
) -> Response:
    """Return a figure as Vega-Lite with its rows, as wide as what it is put into; `usermeta` has
    its title, caption and table."""
    return files.of(request, campaign_id, kind, options, form="vega.json", scheme=scheme)


@router.get(
    "/{kind}.json",
    response_model=AnyFigure,
    response_description="The figure with the series of its kind.",
    responses=problems(404),
)
def series(
    request: Request, campaign_id: CampaignId, kind: Kind, files: FilesOf, options: Options
) -> Response:
    """Return a figure as data: its series, its caption, and its table."""
    return files.of(request, campaign_id, kind, options, form="json")


@router.get(
    "/{kind}.csv",
    response_class=Response,
    response_description="The table.",
    responses={200: TABLE | {"headers": {"ETag": ETAG}}, **problems(404)},
)
def table(
    request: Request, campaign_id: CampaignId, kind: Kind, files: FilesOf, options: Options
) -> Response:
    """Return the table of a figure as CSV, its columns' names first."""
    return files.of(request, campaign_id, kind, options, form="csv")


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
    files: FilesOf,
    options: Options,
    scheme: SchemeOf = "light",
) -> Response:
    """Return a figure as a picture, with its title and caption."""
    return files.of(request, campaign_id, kind, options, form=picture, scheme=scheme)
