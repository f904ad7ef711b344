"""Figures of single layouts: as JSON, and as Vega-Lite with their data."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response

from autotune.schemas.figures import FigureForm
from server.api.conditional import JSON
from server.api.dependencies import AnswersOf, CampaignId, CampaignsOf, StoreOf, TrialNumber
from server.figures.trial import AccumulationFigure, LayoutFigure, PowerFigure, RankMemoryFigure
from server.figures.vega import Scheme
from server.store.trials import get_power, get_trial

router = APIRouter(prefix="/campaigns/{campaign_id:positive}")

TrialChart = Literal["accumulations", "memory", "power"]


@router.get("/charts/accumulations.json")
@router.get("/charts/accumulations.vega.json")
def best_accumulations(
    request: Request,
    campaign_id: CampaignId,
    campaigns: CampaignsOf,
    answers: AnswersOf,
    scheme: Scheme = "light",
) -> Response:
    """Return the best layout's figure; raises NotFound if there is none."""

    def made(event: int) -> bytes:
        best = campaigns.existing_recommendation(campaign_id, event)
        return AccumulationFigure.of_best(best).encoded(_form(request), scheme=scheme)

    return answers.of(request, campaign_id, made)


@router.get("/trials/{number:positive}/charts/{chart}.json")
@router.get("/trials/{number:positive}/charts/{chart}.vega.json")  # registered, and matched, first
def of_trial(
    request: Request,
    campaign_id: CampaignId,
    number: TrialNumber,
    chart: TrialChart,
    campaigns: CampaignsOf,
    store: StoreOf,
    scheme: Scheme = "light",
) -> Response:
    figure: LayoutFigure
    if chart == "power":
        with store.session() as session:
            figure = PowerFigure.of(get_power(session, campaign_id, number))
    else:
        campaign = campaigns.campaign(campaign_id, campaigns.last_event(campaign_id))
        with store.session() as session:
            trial = get_trial(session, campaign_id, number)
        figure = (
            RankMemoryFigure.of(trial, limit_gib=campaign.machine.memory_gib)
            if chart == "memory"
            else AccumulationFigure.of_trial(campaign, trial)
        )
    return Response(figure.encoded(_form(request), scheme=scheme), media_type=JSON)


def _form(request: Request) -> FigureForm:
    return "vega.json" if request.url.path.endswith(".vega.json") else "json"
