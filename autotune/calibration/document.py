"""Read, check and summarise calibration documents.

A document holds observations and no constants: constants are fitted again on reading, so that later
versions with better formulas can use it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import lru_cache

from autotune.calibration.calibration import Calibration
from autotune.calibration.observations import Observation
from autotune.measurement import least_iteration_s
from autotune.resolution import (
    machine_of,
    model_shape,
    strategy_of,
    strategy_shape,
    transformer_of,
)
from autotune.schemas.calibrations import (
    CalibrationDetail,
    CalibrationDocument,
    CalibrationSummary,
    ObservationShape,
)
from autotune.schemas.shapes import ModelShape
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.machine import Machine
from search_spaces.rules import findings
from search_spaces.transformer import Transformer

DEMANDED = frozenset({"machine_nodes", "world_size"})
"""Rules that hold for every trainer; other rules are specific to Megatron-DeepSpeed."""

MOST_OF_MEMORY = 10.0
"""A peak above this multiple of the memory is a wrong unit. On CPUs the memory is a rank's share,
which a rank may exceed."""

MOST_OF_PEAK = 2.0
"""A step faster than this multiple of the machine's peak is a wrong unit: the stated peak may be
low, or for 16-bit products only."""

MOST_OF_POWER = 10.0
"""GPU power above this multiple of the cap is a wrong unit; sites may raise the cap."""

LONGEST_STEP_S = 1e6

OBSERVED = ("iteration_time_s", "peak_memory_gib", "fitted", "gpu_joules_per_token")

MOST_PROBLEMS = 20
"""Maximum number of problems that one error reports."""


def observation_shape(observation: Observation) -> ObservationShape:
    """Return an observation in the form of a document."""
    return ObservationShape(
        model=model_shape(observation.transformer),
        strategy=strategy_shape(observation.strategy),
        **{name: getattr(observation, name) for name in OBSERVED},
    )


def observation_of(shape: ObservationShape) -> Observation:
    """Return a document's observation without checking it."""
    return Observation(
        transformer=_transformer(shape.model),
        strategy=strategy_of(shape.strategy),
        **{name: getattr(shape, name) for name in OBSERVED},
    )


def calibration_of(document: CalibrationDocument) -> Calibration:
    """Return the calibration fitted to a document's observations.

    Raises:
        InvalidInputs: fields `machine.…` and `observations.3.…` (counted from 0): impossible
            observations, at most MOST_PROBLEMS of them.
    """
    machine = machine_of(document.machine)
    observations: list[Observation] = []
    problems: list[InvalidInput] = []
    for number, shape in enumerate(document.observations):
        try:
            observations.append(_observation(shape, machine))
        except InvalidInputs as refusal:
            problems += [
                InvalidInput(
                    f"observations.{number}.{problem.field}",
                    problem.value,
                    problem.reason,
                    valid=problem.valid,
                )
                for problem in refusal.problems
            ]
    if problems:
        raise InvalidInputs(problems[:MOST_PROBLEMS])
    return Calibration.of(machine, observations, software=document.software)


def _observation(shape: ObservationShape, machine: Machine) -> Observation:
    """Return one observation of a document; raises InvalidInputs if it is impossible."""
    observation = observation_of(shape)
    # Each check relies on the ones before it.
    strategy, transformer = observation.strategy, observation.transformer
    valid = "a strategy that ran on this machine"
    problems = [
        InvalidInput("strategy", strategy.short(), finding.reason, valid=valid)
        for finding in findings(strategy, transformer, machine)
        if finding.rule in DEMANDED
    ] or list(_faults(observation, machine))
    if problems:
        raise InvalidInputs(problems)
    return observation


@lru_cache(maxsize=64)
def _transformer(shape: ModelShape) -> Transformer:
    return transformer_of(shape)


def _faults(observation: Observation, machine: Machine) -> Iterator[InvalidInput]:
    """Yield contradictions, and figures that must be in another unit."""
    names = ("iteration_time_s", "peak_memory_gib", "gpu_joules_per_token")
    figures = {name: getattr(observation, name) for name in names}
    if observation.fitted is None and not any(figures[name] for name in names[:2]):
        valid = "iteration_time_s, peak_memory_gib or fitted"
        yield InvalidInput("fitted", None, "nothing was observed", valid=valid)
    for name, value in figures.items():
        if observation.fitted is False and value is not None:
            reason = "memory did not suffice (fitted is false), and so nothing else was observed"
            yield InvalidInput(name, value, reason, valid="nothing, or fitted: true")
    peak_gib, most_gib = observation.peak_memory_gib, MOST_OF_MEMORY * machine.memory_gib
    if peak_gib is not None and peak_gib > most_gib:
        reason = f"a GPU of {machine.name} has {machine.memory_gib:g} GiB: is it MiB, or bytes?"
        yield InvalidInput("peak_memory_gib", peak_gib, reason, valid="GiB of the fullest rank")
    seconds, least_s = observation.iteration_time_s, _shortest_step_s(observation, machine)
    if seconds is not None and not least_s <= seconds <= LONGEST_STEP_S:
        reason = f"a step of this strategy takes from {least_s:.2g} to {LONGEST_STEP_S:g} s"
        yield InvalidInput("iteration_time_s", seconds, reason, valid="seconds of one step")
    watt, cap = _gpu_watt(observation, machine), machine.gpu_max_watt
    if watt is not None and cap is not None and watt > MOST_OF_POWER * cap:
        joules = observation.gpu_joules_per_token
        reason = f"that is {watt:.3g} W for each GPU, of which {machine.name}'s draws {cap:g}"
        yield InvalidInput(
            "gpu_joules_per_token", joules, reason, valid="J of all GPUs for one token"
        )


def _gpu_watt(observation: Observation, machine: Machine) -> float | None:
    """Return the mean power per GPU in watts; None if energy was not sampled or no step was
    timed."""
    joules, seconds = observation.gpu_joules_per_token, observation.iteration_time_s
    if joules is None or seconds is None:
        return None
    strategy, gpus = observation.strategy, machine.gpus_per_node
    tokens = strategy.global_batch_size(gpus) * observation.transformer.seq_length
    return joules * tokens / (seconds * strategy.world_size(gpus))


def _shortest_step_s(observation: Observation, machine: Machine) -> float:
    """Return the shortest plausible step in seconds; a shorter one is a wrong unit."""
    least = least_iteration_s(
        observation.transformer,
        machine,
        observation.strategy,
        accumulation=observation.strategy.gradient_accumulation_steps,
    )
    return least / MOST_OF_PEAK


def summary_of(
    document: CalibrationDocument, *, name: str, created_at: datetime | None
) -> CalibrationSummary:
    """Return the summary of a calibration that predictions include."""
    observations = document.observations
    return CalibrationSummary(
        name=name,
        machine=document.machine.name,
        software=document.software,
        simulated=document.simulated,
        created_at=created_at,
        observations=len(observations),
        timed=sum(shape.iteration_time_s is not None for shape in observations),
        out_of_memory=sum(shape.fitted is False for shape in observations),
        models=list(dict.fromkeys(shape.model.name for shape in observations)),
    )


def detail_of(calibration: Calibration, summary: CalibrationSummary) -> CalibrationDetail:
    """Return the summary with the constants, those that the observations narrow most first."""
    constants = sorted(
        calibration.constants, key=lambda constant: constant.spread / constant.prior_spread
    )
    return CalibrationDetail(**summary.model_dump(), constants=constants)
