"""Earlier runs, stored as the trials of a campaign that searched nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from sqlalchemy.orm import Session

from autotune.measurement.metrics import AccumulationMeasurement, accumulations, metrics
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState
from autotune.schemas.imports import ImportedRun
from autotune.schemas.requests import CampaignCreate
from autotune.words.quantities import listed
from search_spaces.fields import as_table
from server.store.campaigns import (
    IdempotencyKey,
    campaign_row,
    change_state,
    create_campaign,
    find_replay,
    get_campaign,
)
from server.store.tables import TrialRow

IMPORTED = "imported"
MOST_SOURCES = 5


def import_runs(
    session: Session,
    request: CampaignCreate,
    runs: Sequence[ImportedRun],
    *,
    idempotency: IdempotencyKey,
    **about: Any,
) -> Campaign:
    """Store runs as a campaign, or return the one that the same runs were stored as. Later
    campaigns of its stack start from them (`server.store.history`).

    Args:
        idempotency: the same for the same runs.
        about: model, machine, profile and owner, as of `create_campaign`.
    """
    if before := find_replay(session, idempotency):
        return before
    created = create_campaign(session, request, simulated=False, idempotency=idempotency, **about)
    row = campaign_row(session, created.id)
    row.evaluator = IMPORTED
    session.add_all(_trial(created, number, run) for number, run in enumerate(runs, start=1))
    files = list(dict.fromkeys(run.source.partition(",")[0] for run in runs))
    shown = files if len(files) <= MOST_SOURCES else [*files[:MOST_SOURCES], "others"]
    change_state(session, row, CampaignState.IMPORTED, reason=f"from {listed(shown)}")
    session.flush()
    return get_campaign(session, row.id)


def _trial(campaign: Campaign, number: int, run: ImportedRun) -> TrialRow:
    now = datetime.now(UTC)
    columns: Mapping[str, Any] = {"measurements": [], "error": "out of memory"}
    if run.iteration_time_s is not None:
        gas = run.strategy.gradient_accumulation_steps
        step = AccumulationMeasurement(
            gradient_accumulation_steps=gas, iteration_times_s=(run.iteration_time_s,)
        )
        measured = campaign.model, campaign.machine, run.strategy, [step]
        columns = {
            "metrics": metrics(*measured, peak_memory_gib=run.peak_memory_gib).model_dump(),
            "measurements": [each.model_dump(mode="json") for each in accumulations(*measured)],
        }
    return TrialRow(
        campaign_id=campaign.id,
        number=number,
        token=f"c{campaign.id}-t{number}-{uuid4().hex[:12]}",
        purpose=IMPORTED,
        strategy=as_table(run.strategy),
        state=run.state,
        phase_reason=f"from {run.source}",
        simulated=False,
        created_at=now,
        finished_at=min(run.finished_at, now),
        peak_memory_gib=[run.peak_memory_gib] if run.peak_memory_gib else [],
        versions={},
        **columns,
    )
