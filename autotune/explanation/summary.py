"""Explain a campaign: why its best is best and what lies beyond its space, or why every trial
failed."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.calibration import Calibration
from autotune.dimension_words import capitalised
from autotune.explanation.edge import BeyondEdge, EdgeReport, edges
from autotune.explanation.failures import FieldValue, explain_failures
from autotune.explanation.parts import bubble_note, compared_of, parts_of
from autotune.resolution import strategy_of, strategy_shape, transformer_of
from autotune.schemas.campaigns import Campaign
from autotune.schemas.explanations import (
    ExplainedStrategy,
    Explanation,
    FailureCause,
    SpaceEdges,
    SuggestedChange,
)
from autotune.schemas.recommendations import Recommendation
from autotune.search import SearchTrial
from search_spaces.choices import AUTO
from search_spaces.dimensions import ACCUMULATION, BY_NAME, DIMENSIONS
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
        transformer_of(campaign.model),
        objective=campaign.request.objective,
    )
    beyond = failures = None
    if recommendation is not None:
        best = strategy_of(recommendation.best.strategy)
        beyond = _edges(campaign, best, calibration, space) if _within(space, best) else None
    elif space is not None:
        failures = explain_failures(
            space,
            calibration,
            trials,
            objective=campaign.request.objective,
            headroom_gib=campaign.request.min_headroom_gib,
        )
    return Explanation(
        campaign_id=campaign.id,
        simulated=campaign.simulated,
        memory_limit_gib=calibration.parameters.usable_gib(machine),
        gpu_memory_gib=machine.memory_gib,
        time_note=bubble_note(calibration),
        strategies=strategies,
        edges=beyond,
        failures=failures,
        sentences=_sentences(strategies, beyond, failures),
    )


def _within(space: SearchSpace, strategy: Strategy) -> bool:
    return all(strategy.value(name) in values for name, values in space.dimensions.items())


def _edges(
    campaign: Campaign, best: Strategy, calibration: Calibration, space: SearchSpace
) -> SpaceEdges:
    report = edges(
        space,
        calibration,
        best,
        objective=campaign.request.objective,
        headroom_gib=campaign.request.min_headroom_gib,
        seed=campaign.request.seed,
    )
    beyond = _most_promising(report)
    return SpaceEdges(
        sentence=f"{report.sentence}.",
        suggestion=None
        if beyond is None
        else SuggestedChange(
            fields=fields_with(space, beyond.strategy),
            strategy=strategy_shape(beyond.strategy),
            fit_probability=beyond.fit_probability,
            sentence=f"{capitalised(beyond.sentence)}.",
        ),
    )


def _most_promising(report: EdgeReport) -> BeyondEdge | None:
    """Return the prediction that the report's sentence mentions; None if none is better and
    fits."""
    alone = [each for edge in report.edges for each in edge.beyond if each.worth_trying]
    return report.together or max(alone, key=lambda each: each.relative, default=None)


def fields_with(space: SearchSpace, strategy: Strategy) -> dict[str, FieldValue]:
    """Return the request fields to change so that its space includes a strategy: `space.…` with all
    values of each dimension that lacks the strategy's value, and `nodes`."""
    fields: dict[str, FieldValue] = {}
    if strategy.num_nodes > space.nodes:
        fields["nodes"] = strategy.num_nodes
    for name in DIMENSIONS:
        value, allowed = getattr(strategy, name), space.dimensions[name]
        if value in allowed:
            continue
        if name == ACCUMULATION and space.batch.maximum is not None:
            fields[f"space.{name}"] = AUTO
        else:
            ordered = BY_NAME[name].is_counted
            values = [*allowed, value]
            fields[f"space.{name}"] = sorted(values, key=int) if ordered else values
    return fields


def _sentences(
    strategies: Sequence[ExplainedStrategy],
    beyond: SpaceEdges | None,
    failures: FailureCause | None,
) -> list[str]:
    if failures is not None:
        return [failures.sentence]
    if not strategies:
        return []
    winner, *others = strategies
    name = strategy_of(winner.strategy).short()
    baselines = [each for each in others if each.role == "baseline"]
    return [
        f"{name}: {winner.sentence[0].lower()}{winner.sentence[1:]}",
        *(each.sentence for each in [*baselines, *others][:1]),
        *([beyond.sentence] if beyond else []),
    ]
