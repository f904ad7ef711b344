"""Trials of a campaign: listed, read, exported as a table, and their logs."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import PlainTextResponse, Response, StreamingResponse

from autotune.measurement.table import COLUMNS, row_of
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial, TrialPage
from autotune.schemas.wire import TrialPurpose
from evaluators.trial import LOG
from server.api.answers import as_json
from server.api.dependencies import (
    AnswersOf,
    CampaignId,
    Cursor,
    SettingsOf,
    StoreOf,
    TrialNumber,
    problems,
)
from server.runner.trial_logs import attempt_folders
from server.settings import Settings
from server.store import NotFound, Store
from server.store.campaigns import get_campaign
from server.store.trials import get_trial, layouts_of_experts, list_trials, settings_in

router = APIRouter(prefix="/campaigns/{campaign_id:positive}", tags=["trials"])

LONGEST_TAIL = 4 * 2**20
"""Maximum bytes of a log that are read."""

CSV_ROWS_AT_ONCE = 500
UNITS = {
    "created_at": "UTC",
    "started_at": "UTC",
    "finished_at": "UTC",
    "duration_s": "s",
    "node_hours": "h",
    "predicted_iteration_time_s": "s",
    "predicted_memory_gib": "GiB",
    "micro_batch_size": "samples",
    "global_batch_size": "samples",
    "iteration_time_s": "s",
    "iteration_time_spread_s": "s",
    "tokens_per_s": "tokens/s",
    "tokens_per_s_per_gpu": "tokens/s",
    "tokens_per_node_hour": "tokens/h",
    "tokens_per_joule": "tokens/J",
    "model_tflops_per_gpu": "TFLOP/s",
    "hardware_tflops_per_gpu": "TFLOP/s",
    "mfu": "1",
    "hfu": "1",
    "peak_memory_gib": "GiB",
    "loss": "nat",
    "gpu_joules_per_token": "J",
    "expected_iteration_time_low_s": "s",
    "expected_iteration_time_high_s": "s",
    "expected_fit_probability": "1",
    "expected_node_hours": "h",
    "expected_probability_better": "1",
}


@router.get("/trials", response_model=TrialPage, responses=problems(404))
def listing(
    request: Request,
    campaign_id: CampaignId,
    store: StoreOf,
    answers: AnswersOf,
    state: Annotated[TrialState | None, Query(description="Only trials in this state.")] = None,
    purpose: Annotated[
        TrialPurpose | None, Query(description="Only trials with this purpose.")
    ] = None,
    sort: Annotated[
        str,
        Query(
            max_length=50,
            description="A metric or a dimension, such as `iteration_time_s` or "
            "`tensor_parallel`; with a leading - for descending order.",
        ),
    ] = "number",
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum trials of a page.")] = 200,
) -> Response:
    """List trials, filtered and sorted; those without the field come last."""

    def page(event: int) -> bytes:  # noqa: ARG001
        with store.session() as session:
            found = list_trials(session, campaign_id, state, purpose, sort, cursor, limit)
        return as_json(found)

    return answers.of(request, campaign_id, page)


@router.get(
    "/trials.csv",
    response_class=StreamingResponse,
    response_description="A row for each trial, in their order.",
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}, **problems(404)},
)
def export(campaign_id: CampaignId, store: StoreOf) -> StreamingResponse:
    """Return all trials as CSV; the header gives the units."""
    with store.session() as session:
        get_campaign(session, campaign_id)
    name = f"campaign-{campaign_id}-trials.csv"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(csv_lines(store, campaign_id), media_type="text/csv", headers=headers)


@router.get("/trials/{number:positive}", responses=problems(404))
def read(campaign_id: CampaignId, number: TrialNumber, store: StoreOf) -> Trial:
    """Return a trial."""
    with store.session() as session:
        return get_trial(session, campaign_id, number)


@router.get(
    "/trials/{number:positive}/log",
    response_class=PlainTextResponse,
    response_description="The end of the log, as it was written.",
    responses=problems(404),
)
def log(
    campaign_id: CampaignId,
    number: TrialNumber,
    store: StoreOf,
    settings: SettingsOf,
    lines: Annotated[
        int, Query(ge=1, le=10_000, description="Maximum lines, counted from the end.")
    ] = 200,
) -> PlainTextResponse:
    """Return the last lines of a trial's log, even while it runs."""
    with store.session() as session:
        trial = get_trial(session, campaign_id, number)
    return PlainTextResponse(tail(trial, settings, lines=lines))


def tail(trial: Trial, settings: Settings, *, lines: int) -> str:
    """Return the last `lines` lines within the last 4 MiB.

    Raises:
        NotFound: there is no log yet.
    """
    path = log_file(trial, settings)
    if path is None:
        reason = f"trial {trial.number} of campaign {trial.campaign_id} has no log"
        raise NotFound("log", trial.number, reason=reason)
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - LONGEST_TAIL))
        end = file.read(LONGEST_TAIL)
    text = end.decode(errors="replace")
    return "".join(text.splitlines(keepends=True)[-lines:])


def log_file(trial: Trial, settings: Settings) -> Path | None:
    """Return the log if it is a file in the trial's own folder; None otherwise.

    A pending trial writes into the folder of its newest attempt. A trial of a restored backup may
    have a path on another machine; its folder is found by its token.
    """
    directory = settings.trial_dir(trial.token).resolve()
    if trial.log_path:
        path = Path(trial.log_path)
        if trial.token in path.parts:
            path = Path(*path.parts[path.parts.index(trial.token) + 1 :])
    else:
        begun = [folder for folder in attempt_folders(directory) if (folder / LOG).exists()]
        path = (begun[-1] if begun else directory) / LOG
    resolved = (directory / path).resolve()
    return resolved if resolved.is_relative_to(directory) and resolved.is_file() else None


def csv_lines(store: Store, campaign_id: int) -> Iterator[str]:
    """Yield the table in pieces, reading a page of rows for each."""
    with store.session() as session:
        own = settings_in(session, campaign_id)
        settings = (*layouts_of_experts(session, campaign_id), *own)
    names = (*COLUMNS, *settings)
    yield _csv([[f"{name} [{UNITS[name]}]" if name in UNITS else name for name in names]])
    cursor: str | None = None
    while True:
        with store.session() as session:
            page = list_trials(session, campaign_id, cursor=cursor, limit=CSV_ROWS_AT_ONCE)
        rows = []
        for trial in page.items:
            rows.append([_cell(value) for value in row_of(trial, settings=settings).values()])
        yield _csv(rows)
        cursor = page.next
        if cursor is None:
            return


def _cell(value: Any) -> Any:
    """Return the value for a cell; an apostrophe keeps spreadsheets from running a text that begins
    like a formula."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return "'" + value
    return value


def _csv(rows: list[list[Any]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer).writerows(rows)
    return buffer.getvalue()
