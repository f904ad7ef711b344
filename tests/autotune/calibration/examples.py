"""Worlds in which the truth is known, and trials of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autotune.calibration import Calibration, Forecast, Observation
from autotune.calibration.posterior import coordinates, shared
from autotune.calibration.quantity import Quantity
from autotune.cost_model import Parameters, estimate
from autotune.cost_model.columns import Array, Columns
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from tests.autotune.cost_model.examples import FRONTIER, GPT_22B, strategy

NOISE = 0.03
"""Standard deviation of the logarithm of a measured time; a third of that for memory."""

GENERAL = Parameters.default(FRONTIER)


def space(*, nodes: int = 4) -> list[Strategy]:
    """Layouts of all kinds, in the same random order each time."""
    layouts = [
        strategy(
            tensor_parallel=t,
            pipeline_parallel=p,
            micro_batch_size=b,
            gradient_accumulation_steps=m,
            zero_stage=z,
            num_nodes=nodes,
            activation_checkpointing=c,
            flash_attention=f,
        )
        for t in (1, 2, 4, 8)
        for p in (1, 2, 4, 8)
        for b in (1, 2, 4)
        for m in (8, 32)
        for z in (0, 1, 2)
        for c in ("none", "selective", "full")
        for f in (True, False)
        if nodes * 8 % (t * p) == 0
    ]
    order = np.random.default_rng(0).permutation(len(layouts))
    return [layouts[at] for at in order]


SPACE = space()


def lattice(strategies: Sequence[Strategy], machine: Machine = FRONTIER) -> Lattice:
    return Lattice.of(strategies, gpus_per_node=machine.gpus_per_node)


def truth(
    strategies: Sequence[Strategy],
    parameters: Parameters,
    *,
    transformer: Transformer = GPT_22B,
    machine: Machine = FRONTIER,
) -> tuple[Array, Array]:
    """Seconds, and GiB that the allocator reserves, where the formulas hold with these
    constants."""
    estimated = estimate(transformer, machine, lattice(strategies, machine), parameters=parameters)
    return estimated.iteration_time_s, estimated.reserved_gib


def needs(strategies: Sequence[Strategy], parameters: Parameters) -> Array:
    """GiB that decide whether they fit."""
    return estimate(GPT_22B, FRONTIER, lattice(strategies), parameters=parameters).memory_gib


def trials(
    strategies: Sequence[Strategy],
    parameters: Parameters,
    *,
    transformer: Transformer = GPT_22B,
    seed: int = 0,
    noise: float = NOISE,
) -> list[Observation]:
    """What would be measured of each: the truth and some noise."""
    times, sizes = truth(strategies, parameters, transformer=transformer)
    generator = np.random.default_rng(seed)
    seconds = times * np.exp(generator.normal(0.0, noise, len(times)))
    gib = sizes * np.exp(generator.normal(0.0, noise / 3.0, len(sizes)))
    return observations(strategies, seconds, gib, transformer=transformer)


def observations(
    strategies: Sequence[Strategy],
    seconds: Array,
    gib: Array,
    *,
    transformer: Transformer = GPT_22B,
) -> list[Observation]:
    return [
        Observation(
            transformer=transformer,
            strategy=each,
            iteration_time_s=float(time),
            peak_memory_gib=float(size),
            fitted=True,
        )
        for each, time, size in zip(strategies, seconds, gib, strict=True)
    ]


def measured_world(
    strategies: Sequence[Strategy], *, seed: int, residual: float, noise: float
) -> tuple[Array, Array]:
    """Seconds and GiB as a machine would show them of which no more is known than what is generally
    known: constants off by their spreads, formulas by `residual`, measurements by `noise`."""
    generator = np.random.default_rng(seed)
    columns = Columns.of(GPT_22B, lattice(strategies))
    places = coordinates(columns)
    root = np.linalg.cholesky(shared(places, places) + 1e-9 * np.eye(len(strategies)))
    results = []
    for of_memory in (False, True):
        quantity = Quantity(machine=FRONTIER, prior=GENERAL, of_memory=of_memory)
        z = generator.normal(size=len(quantity.names))
        formulas = quantity.log_value(z, columns, np.zeros(len(strategies)))
        wrong = residual * root @ generator.normal(size=len(strategies))
        results.append(np.exp(formulas + wrong + noise * generator.normal(size=len(strategies))))
    return results[0], results[1]


def forecast(
    calibration: Calibration,
    strategies: Sequence[Strategy],
    *,
    transformer: Transformer = GPT_22B,
) -> Forecast:
    return calibration.forecast(transformer, lattice(strategies, calibration.machine))


def error(found: Array, true: Array) -> float:
    """Median of the absolute logarithm of the ratio."""
    return float(np.median(np.abs(np.log(found / true))))


def within(low: Array, value: Array, high: Array) -> float:
    """Share of the values that lie in their intervals."""
    return float(np.mean((low <= value) & (value <= high)))


def slower(observation: Observation, factor: float) -> Observation:
    assert observation.iteration_time_s is not None
    return replace(observation, iteration_time_s=observation.iteration_time_s * factor)
