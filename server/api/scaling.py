"""How a layout scales over nodes: of any strategy, predicted; of a campaign's, with what its trials
measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query

from autotune.prediction import scaling_series, scaling_study
from autotune.recommendation import recommend
from autotune.resolution import strategy_of
from autotune.schemas import ScalingQuery, ScalingStudy, Trial, TrialState
from search_spaces.errors import InvalidInput
from search_spaces.strategy import Strategy
from server.api.calibrations import calibration_for
from server.api.dependencies import CampaignId, Rank, SettingsOf, StoreOf, problems
from server.api.predictions import STRATEGY
from server.figures.source import CampaignBelief
from server.programs import chosen_program
from server.store import NotFound
from server.store.campaigns import get_campaign, profile_of
from server.store.history import earlier_observations
from server.store.trials import all_trials

router = APIRouter(tags=["predictions"])

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
        description="numbers of nodes: `16,32,64`",
    ),
]


@router.post("/predictions/scaling", responses=problems(403))
def predicted(
    query: Annotated[ScalingQuery, Body(openapi_examples=LAYOUT)],
    store: StoreOf,
    settings: SettingsOf,
) -> ScalingStudy:
    """Predict strong and weak scaling of a strategy's layout."""
    program = chosen_program(query, settings.profiles_dir)
    calibration, summary = calibration_for(store, query.machine, query.calibration)
    return scaling_study(query, calibration, summary, program=program)


@router.get("/campaigns/{campaign_id}/scaling", responses=problems(404))
def of_campaign(
    campaign_id: CampaignId, store: StoreOf, rank: Rank = 1, nodes: Widths = None
) -> ScalingStudy:
    """Tell how the strategy of a rank scales: measured where a trial ran, predicted elsewhere from
    all that the campaign's trials have shown; 404 while none has succeeded."""
    with store.session() as session:
        campaign = get_campaign(session, campaign_id)
        trials = all_trials(session, campaign_id)
        profile = profile_of(session, campaign_id) if campaign.request.slurm else None
        kept = earlier_observations(session, campaign_id) if campaign.started_from else []
    recommendation = recommend(campaign, trials)
    if recommendation is None:
        reason = f"campaign {campaign_id} has nothing that could scale: no trial has succeeded"
        raise NotFound("recommendation", campaign_id, reason=reason)
    ranked = {each.rank: each for each in (recommendation.best, *recommendation.runners_up)}
    if rank not in ranked:
        reason = "the recommendation does not go that far"
        raise InvalidInput("rank", rank, reason, valid=f"1 to {max(ranked)}")
    belief = CampaignBelief.of(campaign, trials, profile=profile, kept=kept)
    strategy = ranked[rank].strategy
    return ScalingStudy(
        model=campaign.model,
        machine=campaign.machine,
        strategy=strategy,
        campaign_id=campaign_id,
        simulated=campaign.simulated,
        series=scaling_series(
            belief.calibration,
            belief.transformer,
            strategy_of(strategy),
            nodes=[int(each) for each in nodes.split(",")] if nodes else (),
            measured=measured_steps(trials),
            program=belief.space.program,
        ),
    )


def measured_steps(trials: Sequence[Trial]) -> dict[Strategy, float]:
    """Return the seconds of each step that trials have timed, by what ran; of several the last."""
    return {
        strategy_of(trial.strategy).with_accumulation(each.gradient_accumulation_steps): (
            each.iteration_time_s
        )
        for trial in trials
        if trial.state is TrialState.OK and trial.num_layers is None
        for each in trial.accumulations
        if each.measured
    }
