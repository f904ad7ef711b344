"""Predictions of the cost model: of a space, a strategy, a campaign, and of a layout over nodes."""

from __future__ import annotations

from typing import Annotated, Any, get_args

from fastapi import APIRouter, Body, Query

from autotune.prediction.scaling import scaling_study
from autotune.prediction.space import space_report
from autotune.prediction.strategy import predict
from autotune.prediction.sweep import sweep
from autotune.schemas.choices import ScalingKind
from autotune.schemas.plans import CampaignPlan
from autotune.schemas.predictions import Prediction, SpaceReport, Sweep, SweepQuery
from autotune.schemas.requests import CampaignCreate, PredictionQuery, SpaceQuery
from autotune.schemas.resolution import strategy_of
from autotune.schemas.scaling import ScalingQuery, ScalingStudy
from autotune.schemas.shapes import StrategyShape
from search_spaces.errors import InvalidInput
from server.api.dependencies import (
    CampaignId,
    CampaignsOf,
    PlansOf,
    Rank,
    SettingsOf,
    problems,
)
from server.auth.permissions import CallerOf
from server.figures.scaling import scaled
from server.figures.source import FigureSource
from server.programs import chosen_program, refusals_of
from server.store import NotFound

router = APIRouter(tags=["predictions"])

SPACE: dict[str, Any] = {
    "table-v": {
        "value": {
            "model": "gpt-175b",
            "machine": "frontier",
            "nodes": 16,
            "space": {"preset": "table-v"},
        }
    }
}
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
LAYOUT: dict[str, Any] = {
    "175B from 128 to 1,024 GPUs of Frontier": {
        "value": STRATEGY["175B on Frontier"]["value"] | {"nodes": [16, 32, 64, 128]}
    }
}
Widths = Annotated[
    str | None,
    Query(
        max_length=200,
        pattern=r"^[0-9]{1,9}(,[0-9]{1,9})*$",
        description="Numbers of nodes, separated by commas: `16,32,64`; none: halves and "
        "doubles of the strategy's own.",
    ),
]


@router.post("/spaces", responses=problems(403))
def report(
    query: Annotated[SpaceQuery, Body(openapi_examples=SPACE)],
    settings: SettingsOf,
    caller: CallerOf,
) -> SpaceReport:
    """Count all strategies, the legal ones, those that fit, and what each rule removes."""
    return space_report(query, program=chosen_program(query, settings, as_admin=caller.is_admin))


@router.post("/predictions", responses=problems(403))
def prediction(
    query: Annotated[PredictionQuery, Body(openapi_examples=STRATEGY)],
    plans: PlansOf,
    settings: SettingsOf,
    caller: CallerOf,
) -> Prediction:
    """Predict of one strategy whether it is legal, its memory and its time, part by part."""
    program = chosen_program(query, settings, as_admin=caller.is_admin)
    refusals = refusals_of(query, settings, as_admin=caller.is_admin)
    calibration, summary = plans.earlier(query, owner=caller.name, as_admin=caller.is_admin)
    return predict(query, calibration, summary, program=program, refusals=refusals)


@router.post("/sweeps", responses=problems(403))
def ranking(
    query: Annotated[SweepQuery, Body(openapi_examples=SPACE)],
    plans: PlansOf,
    settings: SettingsOf,
    caller: CallerOf,
) -> Sweep:
    """Rank a whole space by predicted rate, the best strategies with intervals."""
    program = chosen_program(query, settings, as_admin=caller.is_admin)
    calibration, summary = plans.earlier(query, owner=caller.name, as_admin=caller.is_admin)
    return sweep(query, calibration, summary, most=query.most, program=program)


@router.post("/plans", responses=problems(403))
def planned(
    question: Annotated[CampaignCreate, Body(openapi_examples=QUESTION)],
    plans: PlansOf,
    caller: CallerOf,
) -> CampaignPlan:
    """Predict of a campaign what is likely to fit, the best layout, its cost, and what it would
    find, from the earlier trials that it would start from."""
    return plans.of(question, owner=caller.name, as_admin=caller.is_admin)


@router.post("/predictions/scaling", operation_id="scaling.predicted", responses=problems(403))
def scaling(
    query: Annotated[ScalingQuery, Body(openapi_examples=LAYOUT)],
    plans: PlansOf,
    settings: SettingsOf,
    caller: CallerOf,
) -> ScalingStudy:
    """Predict strong and weak scaling of a strategy's layout."""
    program = chosen_program(query, settings, as_admin=caller.is_admin)
    calibration, summary = plans.earlier(query, owner=caller.name, as_admin=caller.is_admin)
    return scaling_study(query, calibration, summary, program=program)


@router.get(
    "/campaigns/{campaign_id:positive}/scaling",
    operation_id="scaling.of_campaign",
    responses=problems(404),
)
def scaling_of_campaign(
    campaign_id: CampaignId, campaigns: CampaignsOf, rank: Rank = 1, nodes: Widths = None
) -> ScalingStudy:
    """Return the scaling of the strategy with a rank: measured where a trial ran, elsewhere
    predicted with the campaign's calibration; 404 while no trial has succeeded."""
    source = campaigns.latest(campaign_id)
    ranked = _strategies(source)
    if rank not in ranked:
        reason = "the campaign has no strategy of this rank"
        raise InvalidInput("rank", rank, reason, valid=f"1 to {max(ranked)}")
    strategy, study = ranked[rank], source.campaign.request.study
    counts = [int(each) for each in nodes.split(",")] if nodes else []
    with source.belief.lock:
        series = scaled(
            source,
            [strategy_of(strategy)],
            nodes=counts or (study.nodes if study else ()),
            kinds=study.kinds if study else get_args(ScalingKind),
        )
    return ScalingStudy(
        model=source.campaign.model,
        machine=source.campaign.machine,
        strategy=strategy,
        campaign_id=campaign_id,
        simulated=source.campaign.simulated,
        series=series,
    )


def _strategies(source: FigureSource) -> dict[int, StrategyShape]:
    """Return a campaign's recommended strategies by rank, or those of a study in their order;
    raises NotFound while there is none."""
    study, recommendation = source.campaign.request.study, source.recommendation
    if study is not None:
        return dict(enumerate(study.strategies, start=1))
    if recommendation is None:
        campaign_id = source.campaign.id
        reason = f"campaign {campaign_id} has nothing that could scale: no trial has succeeded"
        raise NotFound("recommendation", campaign_id, reason=reason)
    return {each.rank: each.strategy for each in (recommendation.best, *recommendation.runners_up)}
