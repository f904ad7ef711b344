"""The charts' series as JSON, and each chart as a Vega-Lite specification with its rows."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy.orm import Session

from server.api.dependencies import CampaignId, StoreOf, TrialNumber
from server.api.recommendations import recommendation_of
from server.dashboard import charts
from server.dashboard.series import (
    AccumulationSeries,
    MemorySeries,
    accumulation_series,
    best_accumulation_series,
    memory_series,
)
from server.figures.style import Scheme
from server.figures.trajectory import Axis, Trajectory, trajectory, trajectory_chart
from server.store.campaigns import get_campaign
from server.store.trials import all_trials, get_trial

router = APIRouter(prefix="/campaigns/{campaign_id}")

By = Annotated[Axis, Query(description="what the horizontal axis counts")]


@router.get("/charts/trajectory.json")
def trajectory_json(campaign_id: CampaignId, store: StoreOf, by: By = "trial") -> Trajectory:
    with store.session() as session:
        return _trajectory(session, campaign_id, by)


@router.get("/charts/trajectory.vega.json")
def trajectory_vega(
    campaign_id: CampaignId, store: StoreOf, by: By = "trial", scheme: Scheme = "light"
) -> dict[str, Any]:
    with store.session() as session:
        series = _trajectory(session, campaign_id, by)
    return trajectory_chart(series, scheme=scheme)


@router.get("/charts/accumulations.json")
def accumulations_json(campaign_id: CampaignId, store: StoreOf) -> AccumulationSeries:
    """Return the best layout's series; raises NotFound while there is none."""
    with store.session() as session:
        return _best_accumulations(session, campaign_id)


@router.get("/charts/accumulations.vega.json")
def accumulations_vega(
    campaign_id: CampaignId, store: StoreOf, scheme: Scheme = "light"
) -> dict[str, Any]:
    with store.session() as session:
        series = _best_accumulations(session, campaign_id)
    return charts.accumulation_chart(series, scheme=scheme)


@router.get("/trials/{number}/charts/accumulations.json")
def trial_accumulations_json(
    campaign_id: CampaignId, number: TrialNumber, store: StoreOf
) -> AccumulationSeries:
    with store.session() as session:
        return _trial_accumulations(session, campaign_id, number)


@router.get("/trials/{number}/charts/accumulations.vega.json")
def trial_accumulations_vega(
    campaign_id: CampaignId, number: TrialNumber, store: StoreOf, scheme: Scheme = "light"
) -> dict[str, Any]:
    with store.session() as session:
        series = _trial_accumulations(session, campaign_id, number)
    return charts.accumulation_chart(series, scheme=scheme)


@router.get("/trials/{number}/charts/memory.json")
def memory_json(campaign_id: CampaignId, number: TrialNumber, store: StoreOf) -> MemorySeries:
    with store.session() as session:
        return _memory(session, campaign_id, number)


@router.get("/trials/{number}/charts/memory.vega.json")
def memory_vega(
    campaign_id: CampaignId, number: TrialNumber, store: StoreOf, scheme: Scheme = "light"
) -> dict[str, Any]:
    with store.session() as session:
        series = _memory(session, campaign_id, number)
    return charts.memory_chart(series, scheme=scheme)


def _trajectory(session: Session, campaign_id: int, by: Axis) -> Trajectory:
    campaign = get_campaign(session, campaign_id)
    return trajectory(campaign, all_trials(session, campaign_id), by=by)


def _best_accumulations(session: Session, campaign_id: int) -> AccumulationSeries:
    campaign = get_campaign(session, campaign_id)
    trials = all_trials(session, campaign_id)
    return best_accumulation_series(recommendation_of(session, campaign, trials))


def _trial_accumulations(session: Session, campaign_id: int, number: int) -> AccumulationSeries:
    trial = get_trial(session, campaign_id, number)
    return accumulation_series(get_campaign(session, campaign_id), trial)


def _memory(session: Session, campaign_id: int, number: int) -> MemorySeries:
    campaign = get_campaign(session, campaign_id)
    trial = get_trial(session, campaign_id, number)
    return memory_series(trial, limit_gib=campaign.machine.memory_gib)
