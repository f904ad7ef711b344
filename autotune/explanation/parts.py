"""The parts of a strategy's time and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from autotune.calibration import Calibration
from autotune.dimension_words import percent
from autotune.resolution import strategy_of
from autotune.schemas.choices import Objective
from autotune.schemas.recommendations import Ranked, Recommendation
from autotune.schemas.shapes import StrategyShape
from autotune.schemas.trials import TrialMetrics
from autotune.search.layouts import log_work
from autotune.wording import listed
from search_spaces.lattice import Lattice
from search_spaces.rules import experts_across_network
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

Role = Literal["winner", "runner_up", "baseline"]

Origin = Literal["measured", "derived", "projected", "predicted"]
"""Origin of a number: `measured`; `derived` from the same layout at other accumulations;
`projected` from fewer nodes; `predicted` by the calibrated cost model."""

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


def bubble_note(calibration: Calibration) -> str:
    """Return which part of the time rests on an assumed pipeline bubble; empty once trials have
    measured it."""
    ramp = calibration.assumed_ramp
    if ramp is None:
        return ""
    times = f"{ramp:.2g} times the ideal one"
    return f"assumed to be {times}, after two scaling figures of the Frontier study"


def time_words(note: str) -> Mapping[str, str]:
    """Return TIME_WORDS, with `bubble_note` appended to the bubble."""
    return {**TIME_WORDS, "bubble": f"{TIME_WORDS['bubble']} ({note})"} if note else TIME_WORDS


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
    "overhead": "context and fragmentation",
}
"""The cost model's memory parts, in its order; only models with experts have those of experts and
routed tokens."""

SHOWN = 3
"""Maximum number of parts in a sentence."""


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


@dataclass(frozen=True, kw_only=True)
class StrategyParts:
    """Time and memory of one strategy by part.

    The parts are always predicted, and scaled to add up to the total, whose origin is given.

    Attributes:
        iteration_time_s: seconds of one step, the sum of `time_parts_s`, which is keyed by
            TIME_PARTS.
        cost: cost of one token, the reciprocal of the `objective`; energy uses the predicted power.
        memory_gib: peak of the fullest rank, the sum of `memory_parts_gib`, which is keyed by
            MEMORY_WORDS.
        memory_limit_gib: usable part of a GPU's `gpu_memory_gib`.
        fit_probability: probability that it fits; 1 if a peak was measured.
        bubble_note: assumption about the bubble; empty if there is none.
        sentence: the largest parts of a step in words, and whether tokens cross the network to
            their experts.
    """

    role: Role
    strategy: Strategy
    global_batch_size: int
    iteration_time_s: float
    time_origin: Origin
    time_parts_s: Mapping[str, float]
    objective: Objective
    cost: float
    memory_gib: float
    memory_origin: Origin
    memory_parts_gib: Mapping[str, float]
    memory_limit_gib: float
    gpu_memory_gib: float
    fit_probability: float
    bubble_note: str
    sentence: str

    @property
    def shares(self) -> Mapping[str, float]:
        """Share of each part in the step's time."""
        return {name: part / self.iteration_time_s for name, part in self.time_parts_s.items()}

    @property
    def words(self) -> Mapping[str, str]:
        """The label of each of `time_parts_s`."""
        return time_words(self.bubble_note)


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
    role: Role, strategy: StrategyShape, figures: TrialMetrics | None, *, projected: bool
) -> ComparedStrategy:
    if figures is None:
        return ComparedStrategy(role=role, strategy=strategy_of(strategy))
    own: Origin = "measured" if figures.measured else "derived"
    return ComparedStrategy(
        role=role,
        strategy=strategy_of(strategy),
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
) -> list[StrategyParts]:
    """Return time and memory by part of each strategy.

    Raises:
        InvalidInput: field `objective`: it is about energy, and the machine's power is unknown.
    """
    if not compared:
        return []
    machine = calibration.machine
    lattice = Lattice.of([each.strategy for each in compared], gpus_per_node=machine.gpus_per_node)
    forecast = calibration.forecast(transformer, lattice)
    work = np.exp(log_work(lattice, transformer, machine, objective=objective))
    limit = calibration.parameters.usable_gib(machine)
    note = bubble_note(calibration)
    told = []
    for row, each in enumerate(compared):
        predicted = float(forecast.iteration_time_s[row])
        seconds = each.iteration_time_s or predicted
        gib = each.peak_memory_gib or float(forecast.memory_gib[row])
        by_part = {name: float(part[row]) for name, part in forecast.time_parts_s.items()}
        shown = time_by_part(by_part)
        times = {name: seconds / predicted * part for name, part in shown.items()}
        scale = gib / float(forecast.memory_gib[row])
        across = experts_across_network(each.strategy, transformer, machine)
        ran = each.peak_memory_gib is not None and each.memory_origin == "measured"
        told.append(
            StrategyParts(
                role=each.role,
                strategy=each.strategy,
                global_batch_size=int(lattice.global_batch_size[row]),
                iteration_time_s=seconds,
                time_origin=each.time_origin if each.iteration_time_s else "predicted",
                time_parts_s=times,
                objective=objective,
                cost=seconds / float(work[row]),
                memory_gib=gib,
                memory_origin=each.memory_origin if each.peak_memory_gib else "predicted",
                memory_parts_gib={
                    name: scale * float(part[row])
                    for name, part in forecast.memory_parts_gib.items()
                },
                memory_limit_gib=limit,
                gpu_memory_gib=machine.memory_gib,
                fit_probability=1.0 if ran else float(forecast.fit_probability[row]),
                bubble_note=note,
                sentence=_sentence(times, seconds, time_words(note))
                + ("" if across is None else f"; its {across}"),
            )
        )
    return told


def _sentence(times: Mapping[str, float], seconds: float, words: Mapping[str, str]) -> str:
    most = sorted(times, key=lambda name: -times[name])[:SHOWN]
    shares = [percent(times[name] / seconds) for name in most]
    first, *others = zip(shares, (words[name] for name in most), strict=True)
    said = [f"{first[0]} is {first[1]}", *(" ".join(each) for each in others)]
    return f"Of a step {listed(said)}"
