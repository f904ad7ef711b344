"""Comparison of campaigns: their results, and which found the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from autotune.measurement.objectives import OBJECTIVE_UNITS
from autotune.recommendation.ranking import improvements
from autotune.schemas.campaigns import Campaign
from autotune.schemas.comparisons import (
    CampaignComparison,
    ComparedCampaign,
    ProgressStep,
)
from autotune.schemas.recommendations import Recommendation
from autotune.schemas.trials import Trial
from autotune.words.quantities import figure


@dataclass(frozen=True, kw_only=True)
class CampaignResult:
    """A campaign, its trials, and its recommendation; None until a trial succeeded."""

    campaign: Campaign
    trials: Sequence[Trial]
    recommendation: Recommendation | None


def side_by_side(results: Sequence[CampaignResult]) -> CampaignComparison:
    """Return the campaigns in their order, two or more."""
    compared = [_compared(result) for result in results]
    campaigns = [result.campaign for result in results]
    obstacle = _obstacle(campaigns)
    return CampaignComparison(
        campaigns=compared,
        comparable=not obstacle,
        sentence=obstacle or _verdict(compared),
    )


def _compared(result: CampaignResult) -> ComparedCampaign:
    campaign, recommendation = result.campaign, result.recommendation
    return ComparedCampaign(
        campaign_id=campaign.id,
        name=campaign.name,
        state=campaign.state,
        simulated=campaign.simulated,
        objective=campaign.request.objective,
        search=campaign.request.search,
        surrogate=campaign.request.surrogate if campaign.request.search == "deephyper" else None,
        trials=campaign.trials,
        failures=campaign.failures,
        node_hours=campaign.node_hours,
        winner=recommendation.best if recommendation else None,
        provisional=recommendation.provisional if recommendation else False,
        speedup_over_baseline=recommendation.speedup_over_baseline if recommendation else None,
        progress=_progress(campaign, result.trials),
    )


def _progress(campaign: Campaign, trials: Sequence[Trial]) -> list[ProgressStep]:
    ended = [trial for trial in trials if trial.finished_at is not None]
    ended.sort(key=lambda trial: (trial.finished_at or trial.created_at, trial.number))
    sums = accumulate(trial.node_hours or 0.0 for trial in ended)
    spent = {trial.number: hours for trial, hours in zip(ended, sums, strict=True)}
    full = [trial for trial in ended if trial.stands_for_nodes is None]
    steps = [
        ProgressStep(trial=trial.number, node_hours=spent[trial.number], objective=reached)
        for trial, reached in improvements(campaign, full)
    ]
    if steps and steps[-1].node_hours < spent[ended[-1].number]:
        last = {"trial": max(spent), "node_hours": spent[ended[-1].number]}
        steps.append(steps[-1].model_copy(update=last))
    return steps


def _obstacle(campaigns: Sequence[Campaign]) -> str:
    objectives = {OBJECTIVE_UNITS[campaign.request.objective] for campaign in campaigns}
    if len(objectives) > 1:
        return f"They optimise different things ({', '.join(sorted(objectives))})."
    models = {campaign.model.name for campaign in campaigns}
    shapes = [replace(campaign.model, details=None) for campaign in campaigns]
    if any(shape != shapes[0] for shape in shapes):
        named = f" ({', '.join(sorted(models))})" if len(models) > 1 else ""
        return f"They train different models{named}, so their rates are not comparable."
    if len({campaign.simulated for campaign in campaigns}) > 1:
        return "Some are simulated and others measured, so their rates are not comparable."
    return ""


def _verdict(compared: Sequence[ComparedCampaign]) -> str:
    reached = [each for each in compared if each.winner is not None]
    if len(reached) < 2:
        return "Fewer than two of them have a result."
    best, *others = sorted(reached, key=_objective, reverse=True)
    unit = OBJECTIVE_UNITS[best.objective]
    origin = " (simulated)" if best.simulated else ""
    against = ", ".join(
        f"{_objective(best) / _objective(other):.3g} times that of campaign {other.campaign_id} "
        f"({figure(other.node_hours)} node-hours)"
        for other in others
    )
    return (
        f"Campaign {best.campaign_id} found the best, {figure(_objective(best))} {unit}{origin} "
        f"for {figure(best.node_hours)} node-hours: {against}."
    )


def _objective(compared: ComparedCampaign) -> float:
    if compared.winner is None:
        return 0.0
    return float(getattr(compared.winner.metrics, compared.objective) or 0.0)
