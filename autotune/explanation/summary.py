"""Explain a campaign: why its best is best and what lies beyond its space, or why every trial
failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.calibration import Calibration
from autotune.dimension_words import COST_WORDS, capitalised, percent, told_apart
from autotune.explanation.edge import BeyondEdge, EdgeReport, edges
from autotune.explanation.failures import FieldValue, explain_failures
from autotune.explanation.parts import Origin, StrategyParts, bubble_note, compared_of, parts_of
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
from autotune.wording import listed
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
    space: SearchSpace | None,
) -> Explanation:
    """Return the explanation of a campaign.

    Args:
        recommendation: None until a trial has succeeded.
        trials: the campaign's informative trials.
        calibration: including these trials.
        space: the campaign's space; None if it can no longer be built.
    """
    machine = calibration.machine
    strategies = (
        [] if recommendation is None else _strategies(campaign, recommendation, calibration)
    )
    beyond = failures = None
    if space is not None and recommendation is not None:
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


def _strategies(
    campaign: Campaign, recommendation: Recommendation, calibration: Calibration
) -> list[ExplainedStrategy]:
    winner, *others = parts_of(
        compared_of(recommendation),
        calibration,
        transformer_of(campaign.model),
        objective=campaign.request.objective,
    )
    compared = compare(winner, others)
    return [
        _explained(winner, relative_cost=1.0, sentence=winner.sentence),
        *(
            _explained(each.strategy, relative_cost=1.0 + each.longer, sentence=each.sentence)
            for each in compared
        ),
    ]


def _explained(parts: StrategyParts, *, relative_cost: float, sentence: str) -> ExplainedStrategy:
    fields = ExplainedStrategy.model_fields
    same = {name: value for name, value in vars(parts).items() if name in fields}
    told = {"strategy": strategy_shape(parts.strategy), "sentence": f"{sentence}."}
    return ExplainedStrategy(**same | told, relative_cost=relative_cost)


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


HARDLY = 0.01
"""Differences below this share of the best strategy's time are not mentioned."""

LOSSES = 2
SAVINGS = 1
"""Maximum number of longer and of shorter parts in a sentence."""

TWICE = 1.0
"""Excess over the best strategy's time above which a sentence gives the ratio and the strategy's
own largest parts, since differences then exceed 100 %."""

FORESEEN: tuple[Origin, ...] = ("projected", "predicted")


@dataclass(frozen=True, kw_only=True)
class PartsComparison:
    """One strategy compared with the best, for the same work.

    Attributes:
        strategy: the strategy compared.
        longer: its cost per token (time, node-hours or energy, by the objective) over that of the
            best, minus 1; negative if lower.
        differences: part -> predicted difference as a share of the best strategy's total; the sum
            is `longer`.
        sentence: the largest differences in words.
    """

    strategy: StrategyParts
    longer: float
    differences: Mapping[str, float]
    sentence: str


def compare(winner: StrategyParts, others: Sequence[StrategyParts]) -> list[PartsComparison]:
    """Compare each of the other strategies with the best."""
    among = [each.strategy for each in others]
    return [_against(winner, other, among) for other in others]


def _against(
    winner: StrategyParts, other: StrategyParts, among: Sequence[Strategy]
) -> PartsComparison:
    ratio, own, theirs = other.cost / winner.cost, winner.shares, other.shares
    differences = {name: ratio * theirs[name] - own[name] for name in own}
    predicted = any(each.time_origin in FORESEEN for each in (winner, other))
    apart = told_apart(other.strategy, winner.strategy, among=among)
    name = capitalised(apart or "the same strategy")
    return PartsComparison(
        strategy=other,
        longer=ratio - 1.0,
        differences=differences,
        sentence=_sentence(name, winner, other, ratio - 1.0, differences, predicted=predicted),
    )


def _sentence(
    name: str,
    winner: StrategyParts,
    other: StrategyParts,
    longer: float,
    differences: Mapping[str, float],
    *,
    predicted: bool,
) -> str:
    if other.role == "baseline":
        name = f"The baseline ({name})"
    tells = "is predicted to take" if predicted else "takes"
    if own := _own_dimensions(winner.strategy, other.strategy):
        return f"{_cost(name, tells, winner, longer)}; no formula explains why: {own}"
    if longer >= TWICE:
        most = max(differences, key=lambda part: differences[part])
        share = f"{percent(other.shares[most])} of its time is {other.words[most]}"
        return f"{_cost(name, tells, winner, longer)}: {share}"
    head = _cost(name, tells, winner, longer)
    order = sorted(differences, key=lambda part: -differences[part])
    losses = [part for part in order if differences[part] >= HARDLY][:LOSSES]
    savings = [part for part in reversed(order) if differences[part] <= -HARDLY][:SAVINGS]
    said = []
    if losses:
        lost = [f"{percent(differences[part])} to {other.words[part]}" for part in losses]
        said.append(f"loses {' and '.join(lost)}")
    if savings:
        saved = [f"{percent(differences[part])} in {other.words[part]}" for part in savings]
        said.append(f"saves {' and '.join(saved)}")
    return f"{head}: it {' and '.join(said)}" if said else head


def _cost(name: str, tells: str, winner: StrategyParts, longer: float) -> str:
    """Return the difference in cost in words."""
    same, more, less = COST_WORDS[winner.objective]
    if longer >= TWICE:
        return f"{name} {tells} {1.0 + longer:.2g} times {same}"
    if abs(longer) < HARDLY:
        return f"{name} {tells} {same} as the best"
    return f"{name} {tells} {percent(longer)} {more if longer > 0.0 else less}"


def _own_dimensions(winner: Strategy, other: Strategy) -> str:
    """Return the trainer-defined dimensions that differ, in words. Their effect is learned from
    trials and belongs to no part of a step."""
    own = dict(winner.settings)
    names = [name for name, value in other.settings if own.get(name) != value]
    verb = "is the trainer's own" if len(names) == 1 else "are the trainer's own"
    return f"{listed(names)} {verb}" if names else ""
