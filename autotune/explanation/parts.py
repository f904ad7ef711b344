"""The parts of a strategy's time and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.calibration import Calibration
from autotune.schemas.choices import Objective
from autotune.schemas.explanations import ExplainedStrategy, Origin, Role
from autotune.schemas.recommendations import Ranked, Recommendation
from autotune.schemas.trials import TrialMetrics
from autotune.search.layouts import log_work
from autotune.words.dimensions import COST_WORDS, capitalised, differences_of, percent
from autotune.words.quantities import listed
from search_spaces.lattice import Lattice
from search_spaces.rules import experts_across_network
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

TIME_PARTS: Mapping[str, tuple[str, ...]] = {
    "products": ("matrix_multiplication", "embedding_and_logits"),
    "attention": ("attention",),
    "experts": ("experts",),
    "elementwise": ("elementwise",),
    "recomputation": ("recomputation",),
    "tensor_parallel": ("tensor_parallel",),
    "context_parallel": ("context_parallel",),
    "all_to_all": ("all_to_all",),
    "bubble": ("pipeline_bubble",),
    "pipeline_transfer": ("pipeline_transfer",),
    "data_parallel": ("data_parallel", "zero_micro_batches"),
    "optimizer": ("optimizer_step", "step_overhead"),
    "host": ("host",),
    "stragglers": ("stragglers",),
}
"""Time parts as displayed, each a sum of the cost model's parts, in the order of a stacked bar."""

TIME_WORDS: Mapping[str, str] = {
    "products": "matrix products",
    "attention": "attention",
    "experts": "routed experts",
    "elementwise": "norms and other elementwise work",
    "recomputation": "recomputation",
    "tensor_parallel": "tensor-parallel communication",
    "context_parallel": "context-parallel communication",
    "all_to_all": "sending tokens to experts",
    "bubble": "the pipeline's bubble",
    "pipeline_transfer": "transfers between stages",
    "data_parallel": "data-parallel communication",
    "optimizer": "the optimizer's step",
    "host": "waiting for the host",
    "stragglers": "waiting for slower GPUs",
}


def time_by_part(parts: Mapping[str, float]) -> dict[str, float]:
    """Return the displayed parts of a time; parts that are absent are left out."""
    return {
        name: sum(parts.get(part, 0.0) for part in members)
        for name, members in TIME_PARTS.items()
        if any(part in parts for part in members)
    }


MEMORY_WORDS: Mapping[str, str] = {
    "parameters": "parameters",
    "gradients": "gradients",
    "optimizer": "optimizer states",
    "experts": "the experts' weights, gradients and optimizer states",
    "activations": "activations",
    "routed_tokens": "activations of routed tokens",
    "recomputation": "the layer that is recomputed",
    "logits": "logits",
    "zero3_gather": "layers that ZeRO-3 gathers",
    "fragmentation": "gaps between blocks",
    "overhead": "context and communicators",
}
"""The cost model's memory parts, in its order; only models with experts have those of experts and
routed tokens."""

SHOWN = 3
"""Maximum number of parts in a sentence."""

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
class ComparedStrategy:
    """A strategy to explain, with its measurements.

    Attributes:
        iteration_time_s: at its own GAS; None if there is only a prediction.
        peak_memory_gib: peak of the fullest rank; None if it was not read.
        time_origin, memory_origin: origin of these two.
    """

    role: Role
    strategy: Strategy
    iteration_time_s: float | None = None
    peak_memory_gib: float | None = None
    time_origin: Origin = "measured"
    memory_origin: Origin = "measured"


def compared_of(recommendation: Recommendation) -> list[ComparedStrategy]:
    """Return the best of a recommendation, its runners-up, and the baseline unless it is among
    them; the baseline is only predicted if its trial gave no measurement."""
    ranked = [recommendation.best, *recommendation.runners_up]
    baseline = recommendation.baseline
    compared = [
        _compared(
            _role(each, recommendation),
            each.strategy,
            each.metrics,
            projected=each.projected_from_nodes is not None,
        )
        for each in ranked
    ]
    if baseline is not None and baseline.strategy not in [each.strategy for each in ranked]:
        compared.append(_compared("baseline", baseline.strategy, baseline.metrics, projected=False))
    return compared


def _role(ranked: Ranked, recommendation: Recommendation) -> Role:
    baseline = recommendation.baseline
    if ranked is recommendation.best:
        return "winner"
    measured_first = baseline is not None and ranked.strategy == baseline.strategy
    return "baseline" if measured_first else "runner_up"


def _compared(
    role: Role, strategy: Strategy, figures: TrialMetrics | None, *, projected: bool
) -> ComparedStrategy:
    if figures is None:
        return ComparedStrategy(role=role, strategy=strategy)
    own: Origin = "measured" if figures.measured else "derived"
    return ComparedStrategy(
        role=role,
        strategy=strategy,
        iteration_time_s=figures.iteration_time_s,
        peak_memory_gib=figures.peak_memory_gib,
        time_origin="projected" if projected else own,
        memory_origin="projected" if projected else "measured",
    )


def parts_of(
    compared: Sequence[ComparedStrategy],
    calibration: Calibration,
    transformer: Transformer,
    *,
    objective: Objective = "tokens_per_s",
) -> list[ExplainedStrategy]:
    """Return time and memory by part of each strategy, and how each compares with the first, the
    best, for the same work; energy uses the predicted power.

    Raises:
        InvalidInput: field `objective`: it is about energy, and the machine's power is unknown.
    """
    if not compared:
        return []
    machine = calibration.machine
    strategies = [each.strategy for each in compared]
    lattice = Lattice.of(strategies, gpus_per_node=machine.gpus_per_node)
    forecast = calibration.forecast(transformer, lattice)
    work = np.exp(log_work(lattice, transformer, machine, objective=objective))
    given = zip(compared, forecast.iteration_time_s, strict=True)
    times_s = np.array([each.iteration_time_s or predicted_s for each, predicted_s in given])
    costs = times_s / work
    explained: list[ExplainedStrategy] = []
    for row, each in enumerate(compared):
        predicted = forecast.of_one(row)
        seconds = float(times_s[row])
        gib = each.peak_memory_gib or predicted["memory_gib"]
        ran = each.peak_memory_gib is not None and each.memory_origin == "measured"
        parts = ExplainedStrategy(
            role=each.role,
            strategy=each.strategy,
            global_batch_size=int(lattice.global_batch_size[row]),
            iteration_time_s=seconds,
            time_origin=each.time_origin if each.iteration_time_s else "predicted",
            time_parts_s={
                name: seconds / predicted["iteration_time_s"] * part
                for name, part in time_by_part(predicted["time_parts_s"]).items()
            },
            relative_cost=float(costs[row] / costs[0]),
            memory_gib=gib,
            memory_origin=each.memory_origin if each.peak_memory_gib else "predicted",
            memory_parts_gib={
                name: gib / predicted["memory_gib"] * part
                for name, part in predicted["memory_parts_gib"].items()
            },
            fit_probability=1.0 if ran else float(forecast.fit_probability[row]),
            sentence="",
        )
        if explained:
            apart = differences_of(each.strategy, strategies[0], among=strategies[1:])
            sentence = _against(explained[0], parts, apart, objective)
        else:
            across = experts_across_network(each.strategy, transformer, machine)
            sentence = _largest(parts) + ("" if across is None else f"; its {across}")
        explained.append(parts.model_copy(update={"sentence": f"{sentence}."}))
    return explained


def shares(strategy: ExplainedStrategy) -> dict[str, float]:
    parts = strategy.time_parts_s.items()
    return {name: part / strategy.iteration_time_s for name, part in parts}


def differences(winner: ExplainedStrategy, other: ExplainedStrategy) -> dict[str, float]:
    """Return by how much more of each part another strategy takes for the same work, as a share of
    the best strategy's total; the sum is its `relative_cost - 1`."""
    own, ratio = shares(winner), other.relative_cost
    return {name: ratio * share - own[name] for name, share in shares(other).items()}


def _largest(strategy: ExplainedStrategy) -> str:
    each = shares(strategy)
    most = sorted(each, key=lambda name: -each[name])[:SHOWN]
    first, *others = ((percent(each[name]), TIME_WORDS[name]) for name in most)
    phrases = [f"{first[0]} of a step is {first[1]}", *(" ".join(one) for one in others)]
    return listed(phrases)


def _against(
    winner: ExplainedStrategy,
    other: ExplainedStrategy,
    apart: str,
    objective: Objective,
) -> str:
    """Return the largest differences from the best in words.

    Args:
        apart: the values in which it differs from the others.
    """
    name = capitalised(apart or "the same layout")
    if other.role == "baseline":
        name = f"The baseline ({name})"
    foreseen = any(each.time_origin in FORESEEN for each in (winner, other))
    takes = "is predicted to take" if foreseen else "takes"
    head = f"{name} {takes} {_cost(other.relative_cost - 1.0, objective)}"
    if own := _own_dimensions(winner, other):
        return f"{head}; the cost model cannot explain why: {own}"
    more = differences(winner, other)
    if other.relative_cost - 1.0 >= TWICE:
        most = max(more, key=lambda part: more[part])
        return f"{head}: {percent(shares(other)[most])} of its time is {TIME_WORDS[most]}"
    order = sorted(more, key=lambda part: -more[part])
    losses = [part for part in order if more[part] >= HARDLY][:LOSSES]
    savings = [part for part in reversed(order) if more[part] <= -HARDLY][:SAVINGS]
    changes = [
        f"{percent(more[part])} {'more' if more[part] > 0.0 else 'less'} for {TIME_WORDS[part]}"
        for part in (*losses, *savings)
    ]
    return f"{head}: {', '.join(changes)}" if changes else head


def _cost(longer: float, objective: Objective) -> str:
    same, more, less = COST_WORDS[objective]
    if longer >= TWICE:
        return f"{1.0 + longer:.2g} times {same}"
    if abs(longer) < HARDLY:
        return f"{same} as the best"
    return f"{percent(longer)} {more if longer > 0.0 else less}"


def _own_dimensions(winner: ExplainedStrategy, other: ExplainedStrategy) -> str:
    """Return the trainer-defined dimensions that differ, in words. Their effect is learned from
    trials and belongs to no part of a step."""
    own = dict(winner.strategy.settings)
    names = [name for name, value in other.strategy.settings if own.get(name) != value]
    verb = "is the trainer's own" if len(names) == 1 else "are the trainer's own"
    return f"{listed(names)} {verb}" if names else ""
