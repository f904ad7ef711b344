"""Trials as observations for the calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.calibration.sample import Sample
from autotune.cost_model.columns import Array, Columns
from autotune.measurement.energy import joules_per_token
from autotune.measurement.metrics import probe_accumulations
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Accumulation, Trial
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The result of one strategy.

    Attributes:
        iteration_time_s: seconds of one optimizer step; None if no step was timed.
        peak_memory_gib: peak of the fullest rank, as torch's allocator reserved it; None if it was
            not read.
        peak_allocated_gib: what the allocator gave out of it; None if it was not read.
        fitted: whether the strategy fitted into memory; None if the trial failed for another
            reason.
        gpu_joules_per_token: joules per token, without hosts, at this accumulation; None if power
            was not sampled.
        weight: weight in (0, 1] relative to the same trial run now; lower for older trials and
            other software versions (`autotune.calibration.history`).
    """

    transformer: Transformer
    strategy: Strategy
    iteration_time_s: float | None = None
    peak_memory_gib: float | None = None
    peak_allocated_gib: float | None = None
    fitted: bool | None = None
    gpu_joules_per_token: float | None = None
    weight: float = 1.0


def columns_of(observations: Sequence[Observation], machine: Machine) -> Columns:
    """Return one row per observation; the observations may be of different models."""
    places: dict[Transformer, list[int]] = {}
    for place, observation in enumerate(observations):
        places.setdefault(observation.transformer, []).append(place)
    of_models = [
        Columns.of(
            transformer,
            Lattice.of(
                [observations[place].strategy for place in same],
                gpus_per_node=machine.gpus_per_node,
            ),
        )
        for transformer, same in places.items()
    ]
    order = np.argsort([place for same in places.values() for place in same])
    return Columns.stack(of_models).take(order)


def weights_of(observations: Sequence[Observation]) -> Array:
    return np.array([observation.weight for observation in observations], dtype=np.float64)


def time_sample(observations: Sequence[Observation], machine: Machine) -> Sample:
    """Return the timed steps as a sample."""
    timed = [observation for observation in observations if observation.iteration_time_s]
    seconds = np.array([observation.iteration_time_s for observation in timed], dtype=np.float64)
    columns = columns_of(timed, machine) if timed else Columns.none()
    return Sample(
        columns=columns,
        log_value=np.log(seconds),
        side=np.zeros(len(timed)),
        weight=weights_of(timed),
    )


def memory_sample(observations: Sequence[Observation], machine: Machine) -> Sample:
    """Return the memory peaks as a sample; for trials without a reading, whether they fitted."""
    known = [
        observation
        for observation in observations
        if observation.peak_memory_gib or observation.fitted is not None
    ]
    # The peak at an out-of-memory error is lower than what the strategy needs.
    peaks = [
        None if observation.fitted is False else observation.peak_memory_gib
        for observation in known
    ]
    gib = [peak or machine.memory_gib for peak in peaks]
    side = [
        0.0 if peak else 1.0 if observation.fitted else -1.0
        for peak, observation in zip(peaks, known, strict=True)
    ]
    # Both peaks of a trial tell what is allocated from what the allocator keeps.
    both = [each for each in known if each.fitted is not False and each.peak_allocated_gib]
    gib += [each.peak_allocated_gib or 0.0 for each in both]
    every = [*known, *both]
    columns = columns_of(every, machine) if every else Columns.none()
    return Sample(
        columns=columns,
        log_value=np.log(np.array(gib, dtype=np.float64)),
        side=np.array([*side, *(0.0 for _ in both)]),
        weight=weights_of(every),
        allocated=np.arange(len(every)) >= len(known) if both else None,
    )


def observations_of(
    transformer: Transformer, trials: Sequence[Trial], *, machine: Machine
) -> list[Observation]:
    """Return one observation for each trial that completed or ran out of memory.

    Trials that failed otherwise say nothing about their strategy, and trials of knobs are of
    another program. A trial with fewer layers is an
    observation of a smaller transformer.

    A trial measures one layout at one or two accumulations. The observation is of the larger one,
    which has more micro-batches and the peak memory of both. GPU energy was sampled over both and
    is converted to the larger one, because at a smaller accumulation GPUs wait longer for the
    pipeline.

    Args:
        transformer: the campaign's model with all layers.
    """
    observations: list[Observation] = []
    for trial in trials:
        if trial.purpose == "knob":
            continue
        strategy, ran_with = trial.strategy, transformer.with_layers(trial.num_layers)
        measured = [accumulation for accumulation in trial.accumulations if accumulation.measured]
        if trial.state is TrialState.OOM:
            # The strategy needs more memory than it had when it failed.
            in_full = trial.purpose in {"confirmation", "imported"}
            probes = () if in_full else probe_accumulations(strategy)
            most = max(probes, default=strategy.gradient_accumulation_steps)
            ran = strategy.with_accumulation(most)
            observations.append(Observation(transformer=ran_with, strategy=ran, fitted=False))
        elif trial.state is TrialState.OK and measured:
            longest = max(measured, key=lambda a: a.gradient_accumulation_steps)
            ran = strategy.with_accumulation(longest.gradient_accumulation_steps)
            observations.append(
                Observation(
                    transformer=ran_with,
                    strategy=ran,
                    iteration_time_s=longest.iteration_time_s,
                    peak_memory_gib=max(trial.peak_memory_gib_by_rank, default=0.0) or None,
                    peak_allocated_gib=trial.metrics.peak_allocated_gib if trial.metrics else None,
                    fitted=True,
                    gpu_joules_per_token=_drawn(ran_with, machine, ran, longest, trial),
                )
            )
    return observations


def _drawn(
    transformer: Transformer,
    machine: Machine,
    strategy: Strategy,
    longest: Accumulation,
    trial: Trial,
) -> float | None:
    """Return the GPU joules per token at the accumulation of `strategy`; unconverted if the
    machine's power figures are unknown, in which case nothing is compared with it."""
    sampled = trial.gpu_joules_per_token
    if sampled is None:
        return None
    timed = [
        (each.gradient_accumulation_steps, each.iteration_times_s or [each.iteration_time_s])
        for each in trial.accumulations
        if each.measured
    ]
    carried = joules_per_token(
        transformer,
        machine,
        strategy,
        iteration_time_s=longest.iteration_time_s,
        timed=timed,
        sampled=sampled,
        hosts=False,
    )
    return sampled if carried is None else carried
