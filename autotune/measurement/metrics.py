"""Measurements of a trial, and the metrics computed from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, inf
from statistics import median

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autotune.cost_model.parameters import is_cpu
from autotune.measurement.energy import joules_per_token
from autotune.schemas.trials import Accumulation, Routing, TrialMetrics
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

Integers = NDArray[np.int64]

TERA = 1e12
SECONDS_PER_HOUR = 3600.0
SECONDS_PER_DAY = 86400.0

HIGHEST_GPU_TFLOPS = 20_000.0
"""Of a GPU without a published peak: as much as a machine's description may claim of any."""
HIGHEST_CPU_TFLOPS = 20.0
"""Of a rank on a CPU: four cores with 16-bit matrix units (AMX: 2048 operations a cycle) at
2.4 GHz. With vector units and no matrix units it reaches 0.3."""
DEPENDENT_KERNELS = 10
"""Of one layer, forward and backward, each of which waits for the one before: at the least five
matrix products forward and as many backward."""
SHORTEST_KERNEL_S = 1e-6


@dataclass(frozen=True, kw_only=True)
class AccumulationMeasurement:
    """Seconds of each measured iteration at one GAS, without warm-up."""

    gradient_accumulation_steps: int
    iteration_times_s: tuple[float, ...]

    @property
    def iteration_time_s(self) -> float:
        return median(self.iteration_times_s)

    @property
    def spread_s(self) -> float:
        low, high = np.percentile(self.iteration_times_s, [10, 90])
        return float(high - low) / 2


@dataclass(frozen=True, kw_only=True)
class AccumulationLaw:
    """Iteration time of one layout at any GAS: `fixed_s + (GAS + bubble) x micro_batch_s`.

    Under 1F1B the bubble is `(PP - 1) / virtual_stages` micro-batches long, so two measured values
    give all others; on published logs within 2 % as long as both are at least PP.

    Attributes:
        fixed_s: what does not grow with GAS: gradient reduction and optimizer step, less what the
            bubble takes less than `bubble` micro-batches.
        micro_batch_s: the slowest stage's time for one micro-batch.
        bubble: micro-batches that filling and draining the pipeline take.
        measurements: what it was fitted to.
    """

    fixed_s: float
    micro_batch_s: float
    bubble: float
    measurements: tuple[AccumulationMeasurement, ...]

    @classmethod
    def fit(
        cls, strategy: Strategy, measurements: Sequence[AccumulationMeasurement]
    ) -> AccumulationLaw:
        """Fit by least squares through the medians; raises ValueError without any measurement.

        The first and last stage do more than the others, so a micro-batch in the bubble takes less
        than one in the steady state and `fixed_s` may be negative, down to `-bubble x
        micro_batch_s`, where the bubble costs nothing.

        All of the time is ascribed to the micro-batches, the reading that promises least for a
        larger GAS, where only one GAS value was measured (the trial was given up) and where noise
        gives a line that physics excludes: more micro-batches in less time, or a bubble that saves
        time.
        """
        if not measurements:
            raise ValueError("the law needs a measurement")
        bubble = (strategy.pipeline_parallel - 1) / strategy.virtual_stages
        slots = np.array([m.gradient_accumulation_steps + bubble for m in measurements])
        seconds = np.array([m.iteration_time_s for m in measurements])
        micro_batch_s, fixed = float(slots @ seconds / (slots @ slots)), 0.0
        if len({m.gradient_accumulation_steps for m in measurements}) > 1:
            slope, intercept = (float(c) for c in np.polyfit(slots, seconds, 1))
            if slope > 0 and intercept >= -bubble * slope:
                micro_batch_s, fixed = slope, intercept
        return cls(
            fixed_s=fixed,
            micro_batch_s=micro_batch_s,
            bubble=bubble,
            measurements=tuple(measurements),
        )

    def iteration_time_s(self, gradient_accumulation_steps: int) -> float:
        return self.fixed_s + (gradient_accumulation_steps + self.bubble) * self.micro_batch_s

    def spread_s(self, gradient_accumulation_steps: int) -> float:
        """Return the spread of a predicted time: those of the outermost measurements, carried along
        the line.

        It grows with the distance from what was measured; from one GAS value, as the time does.
        """
        ends = sorted(self.measurements, key=lambda m: m.gradient_accumulation_steps)
        low, high = ends[0], ends[-1]
        distance = high.gradient_accumulation_steps - low.gradient_accumulation_steps
        if distance == 0:
            return (
                low.spread_s
                * self.iteration_time_s(gradient_accumulation_steps)
                / (low.iteration_time_s)
            )
        weight = (gradient_accumulation_steps - low.gradient_accumulation_steps) / distance
        return hypot((1 - weight) * low.spread_s, weight * high.spread_s)


LONG_ITERATION_S = 20.0
"""From here on two measured iterations that agree are enough: each is the mean of many
micro-batches, and they are what a trial costs."""

FEWEST_OF_LONG = 2


def measured_iterations(iteration_time_s: NDArray[np.float64], *, least: int) -> NDArray[np.int64]:
    """Return the expected number of timed iterations at one GAS, shape (n,), if they agree.

    Args:
        iteration_time_s: shape (n,).
        least: the minimum.
    """
    fewest = min(least, FEWEST_OF_LONG)
    return np.where(iteration_time_s >= LONG_ITERATION_S, fewest, least)


LEAST_PROBE = 4
"""Fewer micro-batches than this say too little against the noise of a step."""


def probe_accumulations(strategy: Strategy) -> tuple[int, ...]:
    """Return the one or two GAS values at which a trial of this strategy measures, smaller first.

    See `probe_range`, which does the same for many strategies.
    """
    first, last = probe_range(
        accumulation=np.array(strategy.gradient_accumulation_steps),
        stages=np.array(strategy.pipeline_parallel),
        virtual_stages=np.array(strategy.virtual_stages),
    )
    return tuple(sorted({int(first), int(last)}))


def probe_range(
    *, accumulation: Integers, stages: Integers, virtual_stages: Integers
) -> tuple[Integers, Integers]:
    """Return the smaller and the larger GAS at which trials measure; both are equal where a trial
    measures at one.

    PP and twice PP (4 and 8 for short pipelines), where the law holds; a strategy of fewer
    micro-batches is measured at its own GAS, and at a smaller one that still fills the pipeline
    where there is one. None is beyond its own, so a trial holds as many micro-batches at a time as
    the strategy ever will (`min(GAS, PP)`), and at both values as many. Interleaved pipelines take
    micro-batches in groups of PP, so with them all are multiples of it.
    """
    group = np.where(virtual_stages > 1, stages, 1)
    low = group * -(-np.maximum(stages, LEAST_PROBE) // group)
    half = np.maximum(stages, group * -(-accumulation // (2 * group)))
    smaller = np.where(accumulation > low, low, np.minimum(half, accumulation))
    enough = accumulation >= 2 * low
    return np.where(enough, low, smaller), np.where(enough, 2 * low, accumulation)


def least_iteration_s(
    transformer: Transformer, machine: Machine, strategy: Strategy, *, accumulation: int
) -> float:
    """Return a lower bound of the seconds of an iteration at this GAS, for any software.

    The greater of two bounds: the model's FLOPs (of the attention scores the causal half) on all
    GPUs at their peak, and one micro-batch after the other through the kernels of a stage's layers.
    """
    batch = strategy.with_accumulation(accumulation).global_batch_size(machine.gpus_per_node)
    tokens = batch * transformer.seq_length
    masked = 1.5 * transformer.score_flops_per_token
    flops = transformer.model_flops(batch) - masked * tokens
    unknown = HIGHEST_CPU_TFLOPS if is_cpu(machine) else HIGHEST_GPU_TFLOPS
    peak = (machine.peak_tflops or unknown) * TERA
    layers = transformer.num_layers / strategy.pipeline_parallel
    return max(
        flops / (strategy.world_size(machine.gpus_per_node) * peak),
        accumulation * layers * DEPENDENT_KERNELS * SHORTEST_KERNEL_S,
    )


def impossible_time(
    transformer: Transformer,
    machine: Machine,
    strategy: Strategy,
    measurements: Sequence[AccumulationMeasurement],
) -> str | None:
    """Return why a measured time is impossible; None if it is possible.

    One iteration that no machine could run in its time is enough: lines that a trainer keeps back
    and prints together make some iterations too short and others too long.
    """
    for measured in measurements:
        gas = measured.gradient_accumulation_steps
        fastest = min(measured.iteration_times_s, default=inf)
        least = least_iteration_s(transformer, machine, strategy, accumulation=gas)
        if fastest < least:
            return (
                f"GAS {gas}: an iteration in {fastest:.3g} s is impossible: {transformer.name} "
                f"takes at least {least:.3g} s on {strategy.world_size(machine.gpus_per_node)} x "
                f"{machine.gpu} at their peak. Either the lines of several iterations arrive "
                "together (let the trainer print each at once: flush=True, python -u, "
                "PYTHONUNBUFFERED=1), or its times are in another unit, or it trains another "
                "model, or with products of 4 or 8 bits (then raise the machine's peak_tflops)"
            )
    return None


def metrics(
    transformer: Transformer,
    machine: Machine,
    strategy: Strategy,
    measurements: Sequence[AccumulationMeasurement],
    *,
    peak_memory_gib: float | None = None,
    peak_allocated_gib: float | None = None,
    loss: float | None = None,
    first_losses: Sequence[float | None] = (),
    trainer_parameters: float | None = None,
    confirmed: Sequence[str] = (),
    routing: Routing | None = None,
    gpu_joules_per_token: float | None = None,
    power_factor: float = 1.0,
) -> TrialMetrics:
    """Return the metrics of `strategy` from measurements of its layout.

    Args:
        trainer_parameters: the model's parameters as its trainer counts them; None if unknown.
        confirmed: names of the strategy that the trainer reported with the requested value.
        routing: of tokens to experts; None without experts, or if unknown.
        gpu_joules_per_token: measured energy without hosts; None if power was not sampled.
        power_factor: the GPUs' draw relative to the machine's power figures, if power was not
            sampled.

    Raises:
        ValueError: nothing was measured.
    """
    gas = strategy.gradient_accumulation_steps
    direct = {m.gradient_accumulation_steps: m for m in measurements}.get(gas)
    if direct:
        seconds, spread = direct.iteration_time_s, direct.spread_s
    else:
        law = AccumulationLaw.fit(strategy, measurements)
        seconds, spread = law.iteration_time_s(gas), law.spread_s(gas)
    batch = strategy.global_batch_size(machine.gpus_per_node)
    gpus = strategy.world_size(machine.gpus_per_node)
    tokens_per_s = batch * transformer.seq_length / seconds
    per_gpu = 1 / (seconds * gpus * TERA)
    model = transformer.model_flops(batch) * per_gpu
    hardware = transformer.hardware_flops(batch, strategy.activation_checkpointing) * per_gpu
    peak = machine.peak_tflops
    joules = joules_per_token(
        transformer,
        machine,
        strategy,
        iteration_time_s=seconds,
        timed=[(m.gradient_accumulation_steps, m.iteration_times_s) for m in measurements],
        sampled=gpu_joules_per_token,
        power_factor=power_factor,
    )
    return TrialMetrics(
        gradient_accumulation_steps=gas,
        global_batch_size=batch,
        iteration_time_s=seconds,
        iteration_time_spread_s=spread,
        measured=direct is not None,
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_gpu=tokens_per_s / gpus,
        tokens_per_node_hour=tokens_per_s * SECONDS_PER_HOUR / strategy.num_nodes,
        tokens_per_joule=1 / joules if joules else None,
        energy_sampled=bool(joules and gpu_joules_per_token),
        model_tflops_per_gpu=model,
        hardware_tflops_per_gpu=hardware,
        mfu=model / peak if peak else None,
        hfu=hardware / peak if peak else None,
        peak_memory_gib=peak_memory_gib,
        peak_allocated_gib=peak_allocated_gib,
        loss=loss,
        first_losses=list(first_losses),
        trainer_parameters=None if trainer_parameters is None else round(trainer_parameters),
        model_parameters=None if trainer_parameters is None else transformer.trained_parameters,
        confirmed=list(confirmed),
        routing=routing,
    )


def accumulations(
    transformer: Transformer,
    machine: Machine,
    strategy: Strategy,
    measurements: Sequence[AccumulationMeasurement],
) -> list[Accumulation]:
    """Return the iteration time of `strategy` at every GAS of interest, ascending.

    Measured ones are as measured. The law gives the strategy's own and each power of two up to the
    largest of these, if at least two were measured.
    """
    measured = {m.gradient_accumulation_steps: m for m in measurements}
    times: dict[int, float] = {}
    if len(measured) > 1:
        law = AccumulationLaw.fit(strategy, measurements)
        own = strategy.gradient_accumulation_steps
        powers = [1 << power for power in range(max(own, *measured).bit_length())]
        times = {gas: law.iteration_time_s(gas) for gas in (own, *powers)}
    times |= {gas: m.iteration_time_s for gas, m in measured.items()}
    return [
        Accumulation(
            gradient_accumulation_steps=gas,
            global_batch_size=(batch := twin.global_batch_size(machine.gpus_per_node)),
            iteration_time_s=seconds,
            tokens_per_s=batch * transformer.seq_length / seconds,
            measured=gas in measured,
            iteration_times_s=list(measured[gas].iteration_times_s) if gas in measured else [],
        )
        for gas, seconds in sorted(times.items())
        for twin in [strategy.with_accumulation(gas)]
    ]


AGREES = 0.05
"""Share by which two counts of one model may differ: padding, biases and positions are counted or
not."""


def agree(counted: float, expected: int) -> bool:
    return abs(counted - expected) <= AGREES * expected


def another_model(figures: TrialMetrics | None) -> str:
    """Return in words that the trainer trained another model; empty if the counts agree or are
    unknown."""
    if figures is None or figures.trainer_parameters is None or figures.model_parameters is None:
        return ""
    counted, expected = figures.trainer_parameters, figures.model_parameters
    if agree(counted, expected):
        return ""
    return f"the trainer counts {counted:,} parameters, and the requested model has {expected:,}"


ONE_NODE_S = 45.0
"""Imports, process groups and the model's construction on one node of a cluster, assumed."""

PER_DOUBLING_S = 15.0
"""More of it for each doubling of the nodes: communicators and a slower file system, assumed."""

LOCAL_S = 3.0
"""On this machine, where ranks are forked from a warm process."""


def cluster_start_up_s(num_nodes: ArrayLike) -> NDArray[np.float64]:
    return ONE_NODE_S + PER_DOUBLING_S * np.log2(np.asarray(num_nodes, dtype=np.float64))
