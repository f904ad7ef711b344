"""A strategy, a request, a campaign and a trial of 22B on Frontier, with some fields changed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState, TrialState
from autotune.schemas.requests import CampaignCreate
from autotune.schemas.trials import Trial
from search_spaces.catalog import load_machine, load_model
from search_spaces.strategy import Strategy

MODEL = load_model("gpt-22b")
MACHINE = load_machine("frontier")
NOW = datetime(2026, 5, 1, tzinfo=UTC)


def strategy(
    *,
    tp: int = 2,
    pp: int = 4,
    mbs: int = 1,
    gas: int | None = None,
    zero_stage: int = 1,
    nodes: int = 2,
    **others: Any,
) -> Strategy:
    """Return a strategy with a global batch of 64 samples unless `gas` is given."""
    replicas = nodes * 8 // (tp * pp)
    return Strategy(
        tensor_parallel=tp,
        pipeline_parallel=pp,
        micro_batch_size=mbs,
        gradient_accumulation_steps=gas or 64 // (mbs * replicas),
        zero_stage=zero_stage,
        num_nodes=nodes,
        **others,
    )


def request(**changes: Any) -> CampaignCreate:
    plain = {"model": "gpt-22b", "machine": "frontier", "nodes": 2, "evaluator": "simulated"}
    return CampaignCreate.model_validate(plain | changes)


def campaign(**fields: Any) -> Campaign:
    plain = {
        "id": 1,
        "name": "",
        "state": CampaignState.RUNNING,
        "reason": "",
        "simulated": False,
        "model": MODEL,
        "machine": MACHINE,
        "created_at": NOW,
        "started_at": NOW,
        "finished_at": None,
    }
    counts = dict.fromkeys(("trials", "pending", "failures", "confirmations", "node_hours"), 0)
    return Campaign(**plain | counts | {"request": request()} | fields)


def trial(number: int = 1, **fields: Any) -> Trial:
    plain = {
        "id": number,
        "campaign_id": 1,
        "number": number,
        "purpose": "search",
        "strategy": strategy(),
        "token": f"t{number}",
        "state": TrialState.OK,
        "simulated": False,
        "created_at": NOW,
        "started_at": NOW,
        "finished_at": NOW,
        "duration_s": 60.0,
        "node_hours": 0.5,
        "accumulations": [],
        "peak_memory_gib_by_rank": [],
        "versions": {},
    }
    unknown = dict.fromkeys(
        name for name, field in Trial.model_fields.items() if field.is_required()
    )
    return Trial(**unknown | plain | fields)
