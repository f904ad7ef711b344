"""Predictions of the cost model: of a strategy, and of a campaign."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Query

from autotune.prediction.plan import SHOWN
from autotune.prediction.strategy import predict
from autotune.schemas.plans import CampaignPlan
from autotune.schemas.predictions import Prediction
from autotune.schemas.requests import CampaignCreate, PredictionQuery
from server.api.dependencies import (
    PlansOf,
    SettingsOf,
    problems,
)
from server.auth.permissions import CallerOf
from server.programs import chosen_program, is_simulated, refusals_of

router = APIRouter(tags=["predictions"])

STRATEGY: dict[str, Any] = {
    "175B on Frontier": {
        "value": {
            "model": "gpt-175b",
            "machine": "frontier",
            "strategy": {
                "tensor_parallel": 4,
                "pipeline_parallel": 16,
                "micro_batch_size": 1,
                "gradient_accumulation_steps": 320,
                "zero_stage": 1,
                "num_nodes": 16,
                "precision": "fp16",
            },
            "over_nodes": [16, 32, 64, 128],
        }
    }
}


QUESTION: dict[str, Any] = {
    "table-v": {
        "value": {
            "model": "gpt-175b",
            "machine": "frontier",
            "nodes": 16,
            "evaluator": "simulated",
            "space": {"preset": "table-v"},
            "budget": {"max_trials": 40, "train_tokens": 300e9},
        }
    }
}


@router.post("/predictions", responses=problems(403))
def prediction(
    query: Annotated[PredictionQuery, Body(openapi_examples=STRATEGY)],
    plans: PlansOf,
    settings: SettingsOf,
    caller: CallerOf,
) -> Prediction:
    """Predict of one strategy whether it is legal, its memory and its time, part by part, and how
    it scales over nodes."""
    program = chosen_program(query, settings, as_admin=caller.is_admin)
    refusals = refusals_of(query, settings, as_admin=caller.is_admin)
    calibration, sources = (
        (None, [])  # earlier trials ran with the trainer's own
        if query.traits
        else plans.earlier(query, owner=caller.name, as_admin=caller.is_admin)
    )
    return predict(
        query,
        calibration,
        started_from=sources,
        simulated=is_simulated(query),
        program=program,
        refusals=refusals,
    )


@router.post("/plans", responses=problems(403))
def planned(
    question: Annotated[CampaignCreate, Body(openapi_examples=QUESTION)],
    plans: PlansOf,
    caller: CallerOf,
    most: Annotated[
        int, Query(ge=1, le=1000, description="Maximum number of layouts in `best`.")
    ] = SHOWN,
) -> CampaignPlan:
    """Predict of a campaign what is legal and likely to fit, the best layouts, its cost, and what
    it would find, from the earlier trials that it would start from."""
    return plans.of(question, owner=caller.name, as_admin=caller.is_admin, most=most)
