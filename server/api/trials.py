"""Trials of a campaign: listed, read, exported, and their logs."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse, StreamingResponse

from autotune.schemas import Trial, TrialPage, TrialState
from server.api.access import CampaignId, Cursor, SettingsOf, StoreOf, TrialNumber, problems
from server.api.logs import tail
from server.api.table import csv_lines
from server.store.campaigns import get_campaign
from server.store.trials import get_trial, list_trials

router = APIRouter(prefix="/campaigns/{campaign_id}", tags=["trials"])


@router.get("/trials", responses=problems(404))
def listing(
    campaign_id: CampaignId,
    store: StoreOf,
    state: TrialState | None = None,
    purpose: Literal["search", "confirmation"] | None = None,
    sort: Annotated[
        str,
        Query(
            max_length=50,
            description="a figure, such as `iteration_time_s`; `-tokens_per_s` falls",
        ),
    ] = "number",
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> TrialPage:
    """Trials, filtered and sorted; those without the figure sorted by come last."""
    with store.session() as session:
        return list_trials(session, campaign_id, state, purpose, sort, cursor, limit)


@router.get(
    "/trials.csv",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}, **problems(404)},
)
def export(campaign_id: CampaignId, store: StoreOf) -> StreamingResponse:
    """All trials as a table; headers give the units."""
    with store.session() as session:
        get_campaign(session, campaign_id)
    name = f"campaign-{campaign_id}-trials.csv"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(csv_lines(store, campaign_id), media_type="text/csv", headers=headers)


@router.get("/trials/{number}", responses=problems(404))
def read(campaign_id: CampaignId, number: TrialNumber, store: StoreOf) -> Trial:
    with store.session() as session:
        return get_trial(session, campaign_id, number)


@router.get("/trials/{number}/log", response_class=PlainTextResponse, responses=problems(404))
def log(
    campaign_id: CampaignId,
    number: TrialNumber,
    store: StoreOf,
    settings: SettingsOf,
    lines: Annotated[int, Query(ge=1, le=10_000)] = 200,
) -> PlainTextResponse:
    """The last lines of a trial's log, also while it runs."""
    with store.session() as session:
        trial = get_trial(session, campaign_id, number)
    return PlainTextResponse(tail(trial, settings, lines=lines))
