"""Explain a campaign: why its best is best and what lies beyond its space, or why every trial
failed."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.calibration import Calibration
from autotune.explanation.failures import explain_failures
from autotune.explanation.parts import compared_of, parts_of
from autotune.explanation.what_if import left_out
from autotune.schemas.campaigns import Campaign
from autotune.schemas.explanations import (
    ExplainedStrategy,
    Explanation,
    FailureCause,
)
from autotune.schemas.predictions import LayoutChange
from autotune.schemas.recommendations import Recommendation
from autotune.search import SearchTrial
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy


def explain(
    campaign: Campaign,
    recommendation: Recommendation | None,
    trials: Sequence[SearchTrial],
    calibration: Calibration,
    *,
    space: SearchSpace,
) -> Explanation:
    """Return the explanation of a campaign.

    Args:
        recommendation: None until a trial has succeeded.
        trials: the campaign's informative trials.
        calibration: including these trials.
        space: the campaign's.
    """
    machine = calibration.machine
    strategies = parts_of(
        compared_of(recommendation) if recommendation else [],
        calibration,
        campaign.model,
        objective=campaign.request.objective,
    )
    beyond: list[LayoutChange] | None = None
    failures = None
    if recommendation is not None:
        best = recommendation.best.strategy
        if _within(space, best):
            beyond = left_out(
                space,
                calibration,
                best,
                objective=campaign.request.objective,
                headroom_gib=campaign.request.min_headroom_gib or 0.0,
            )
    else:
        failures = explain_failures(
            space,
            calibration,
            trials,
            objective=campaign.request.objective,
            headroom_gib=campaign.request.min_headroom_gib or 0.0,
        )
    return Explanation(
        campaign_id=campaign.id,
        simulated=campaign.simulated,
        memory_limit_gib=calibration.parameters.usable_gib(machine),
        gpu_memory_gib=machine.memory_gib,
        strategies=strategies,
        left_out=beyond or [],
        failures=failures,
        sentences=_sentences(strategies, beyond, failures),
    )


def _within(space: SearchSpace, strategy: Strategy) -> bool:
    return all(strategy.value(name) in values for name, values in space.dimensions.items())


def _sentences(
    strategies: Sequence[ExplainedStrategy],
    beyond: Sequence[LayoutChange] | None,
    failures: FailureCause | None,
) -> list[str]:
    if failures is not None:
        return [failures.sentence]
    if not strategies:
        return []
    winner, *others = strategies
    name = winner.strategy.short()
    baselines = [each for each in others if each.role == "baseline"]
    return [
        f"{name}: {winner.sentence[0].lower()}{winner.sentence[1:]}",
        *(each.sentence for each in [*baselines, *others][:1]),
        *([] if beyond is None else [_outside(beyond)]),
    ]


def _outside(beyond: Sequence[LayoutChange]) -> str:
    if not beyond:
        return "Nothing outside the space is predicted to be better and to fit."
    return f"Outside the space: {beyond[0].sentence}"
