"""The charts of single layouts: their series as JSON, and each as Vega-Lite with its rows."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from server.api.dependencies import (
    AnswersOf,
    CampaignId,
    CampaignsOf,
    RecommendationsOf,
    StoreOf,
    TrialNumber,
)
from server.api.kept_answers import as_json, chart_as_json
from server.api.kept_campaigns import KeptCampaigns
from server.api.kept_recommendations import KeptRecommendations
from server.dashboard import charts
from server.dashboard.series import (
    AccumulationSeries,
    MemorySeries,
    accumulation_series,
    best_accumulation_series,
    memory_series,
)
from server.figures.style import Scheme
from server.figures.vega import Spec
from server.store import Store
from server.store.trials import get_power, get_trial

router = APIRouter(prefix="/campaigns/{campaign_id:positive}")


@router.get("/charts/accumulations.json")
def accumulations_json(
    request: Request,
    campaign_id: CampaignId,
    recommendations: RecommendationsOf,
    answers: AnswersOf,
) -> Response:
    """Return the best layout's series; raises NotFound while there is none."""
    return answers.of(
        request,
        campaign_id,
        lambda event: as_json(_best_accumulations(recommendations, campaign_id, event)),
    )


@router.get("/charts/accumulations.vega.json")
def accumulations_vega(
    request: Request,
    campaign_id: CampaignId,
    recommendations: RecommendationsOf,
    answers: AnswersOf,
    scheme: Scheme = "light",
) -> Response:
    def chart(event: int) -> bytes:
        series = _best_accumulations(recommendations, campaign_id, event)
        return chart_as_json(charts.accumulation_chart(series, scheme=scheme))

    return answers.of(request, campaign_id, chart)


@router.get("/trials/{number:positive}/charts/accumulations.json")
def trial_accumulations_json(
    campaign_id: CampaignId, number: TrialNumber, campaigns: CampaignsOf, store: StoreOf
) -> AccumulationSeries:
    return _trial_accumulations(campaigns, store, campaign_id, number)


@router.get("/trials/{number:positive}/charts/accumulations.vega.json")
def trial_accumulations_vega(
    campaign_id: CampaignId,
    number: TrialNumber,
    campaigns: CampaignsOf,
    store: StoreOf,
    scheme: Scheme = "light",
) -> Spec:
    series = _trial_accumulations(campaigns, store, campaign_id, number)
    return charts.accumulation_chart(series, scheme=scheme)


@router.get("/trials/{number:positive}/charts/memory.json")
def memory_json(
    campaign_id: CampaignId, number: TrialNumber, campaigns: CampaignsOf, store: StoreOf
) -> MemorySeries:
    return _memory(campaigns, store, campaign_id, number)


@router.get("/trials/{number:positive}/charts/memory.vega.json")
def memory_vega(
    campaign_id: CampaignId,
    number: TrialNumber,
    campaigns: CampaignsOf,
    store: StoreOf,
    scheme: Scheme = "light",
) -> Spec:
    series = _memory(campaigns, store, campaign_id, number)
    return charts.memory_chart(series, scheme=scheme)


@router.get("/trials/{number:positive}/charts/power.vega.json")
def power_vega(
    campaign_id: CampaignId, number: TrialNumber, store: StoreOf, scheme: Scheme = "light"
) -> Spec:
    with store.session() as session:
        return charts.power_chart(get_power(session, campaign_id, number), scheme=scheme)


def _best_accumulations(
    recommendations: KeptRecommendations, campaign_id: int, event: int
) -> AccumulationSeries:
    return best_accumulation_series(recommendations.existing(campaign_id, event))


def _trial_accumulations(
    campaigns: KeptCampaigns, store: Store, campaign_id: int, number: int
) -> AccumulationSeries:
    campaign = campaigns.campaign(campaign_id, campaigns.last_event(campaign_id))
    with store.session() as session:
        trial = get_trial(session, campaign_id, number)
    return accumulation_series(campaign, trial)


def _memory(campaigns: KeptCampaigns, store: Store, campaign_id: int, number: int) -> MemorySeries:
    campaign = campaigns.campaign(campaign_id, campaigns.last_event(campaign_id))
    with store.session() as session:
        trial = get_trial(session, campaign_id, number)
    return memory_series(trial, limit_gib=campaign.machine.memory_gib)
