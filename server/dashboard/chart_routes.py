"""Figures of single layouts: their series as JSON, and each as Vega-Lite with its data."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import Response

from autotune.schemas import TrialPower
from server.api.answers import as_json
from server.api.campaign_cache import CampaignCache
from server.api.dependencies import (
    AnswersOf,
    CampaignId,
    CampaignsOf,
    StoreOf,
    TrialNumber,
)
from server.figures.figure import Figure
from server.figures.style import Scheme
from server.figures.trial import (
    AccumulationSeries,
    MemorySeries,
    accumulation_figure,
    accumulation_series,
    best_accumulation_series,
    memory_figure,
    memory_series,
    power_figure,
)
from server.figures.vega import Spec, encoded
from server.store import Store
from server.store.trials import get_power, get_trial

router = APIRouter(prefix="/campaigns/{campaign_id:positive}")

TrialChart = Literal["accumulations", "memory", "power"]


@router.get("/charts/accumulations.json")
def accumulations_json(
    request: Request,
    campaign_id: CampaignId,
    campaigns: CampaignsOf,
    answers: AnswersOf,
) -> Response:
    """Return the best layout's series; raises NotFound if there is none."""
    return answers.of(
        request,
        campaign_id,
        lambda event: as_json(
            best_accumulation_series(campaigns.existing_recommendation(campaign_id, event))
        ),
    )


@router.get("/charts/accumulations.vega.json")
def accumulations_vega(
    request: Request,
    campaign_id: CampaignId,
    campaigns: CampaignsOf,
    answers: AnswersOf,
    scheme: Scheme = "light",
) -> Response:
    def chart(event: int) -> bytes:
        best = campaigns.existing_recommendation(campaign_id, event)
        series = best_accumulation_series(best)
        return encoded(accumulation_figure(series, scheme=scheme).described())

    return answers.of(request, campaign_id, chart)


@router.get("/trials/{number:positive}/charts/{chart}.vega.json")
def trial_vega(
    campaign_id: CampaignId,
    number: TrialNumber,
    chart: TrialChart,
    campaigns: CampaignsOf,
    store: StoreOf,
    scheme: Scheme = "light",
) -> Spec:
    series = _series(campaigns, store, campaign_id, number, chart)
    return _figure(series, scheme=scheme).described()


@router.get("/trials/{number:positive}/charts/{chart}.json")
def trial_json(
    campaign_id: CampaignId,
    number: TrialNumber,
    chart: TrialChart,
    campaigns: CampaignsOf,
    store: StoreOf,
) -> AccumulationSeries | MemorySeries | TrialPower:
    return _series(campaigns, store, campaign_id, number, chart)


def _series(
    campaigns: CampaignCache, store: Store, campaign_id: int, number: int, chart: TrialChart
) -> AccumulationSeries | MemorySeries | TrialPower:
    if chart == "power":
        with store.session() as session:
            return get_power(session, campaign_id, number)
    campaign = campaigns.campaign(campaign_id, campaigns.last_event(campaign_id))
    with store.session() as session:
        trial = get_trial(session, campaign_id, number)
    if chart == "memory":
        return memory_series(trial, limit_gib=campaign.machine.memory_gib)
    return accumulation_series(campaign, trial)


def _figure(series: AccumulationSeries | MemorySeries | TrialPower, *, scheme: Scheme) -> Figure:
    if isinstance(series, AccumulationSeries):
        return accumulation_figure(series, scheme=scheme)
    if isinstance(series, MemorySeries):
        return memory_figure(series, scheme=scheme)
    return power_figure(series, scheme=scheme)
