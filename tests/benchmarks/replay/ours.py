"""Our search on a landscape: with what its stack showed before, a wrong data sheet, or predictions
that belong to other strategies."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import log_ndtr
from scipy.stats import norm

from autotune.calibration.mixture import Mixture
from autotune.calibration.quantity import Quantity
from autotune.calibration.sample import EDGE, Sample
from autotune.cost_model.columns import Array, Columns, Rows
from autotune.cost_model.parameters import Parameters
from search_spaces.machine import Machine
from tests.benchmarks.replay.landscapes import Landscape, Measurements
from tests.benchmarks.replay.trials import Chooser, Revealed

KNOWN_BEFOREHAND = 20
"""Rows of other models that a warm search knows."""

WRONG_FIGURES = (
    "peak_tflops",
    "memory_bandwidth_gb_per_s",
    "intra_node_gb_per_s",
    "inter_node_gb_per_s",
)
"""Of the data sheet: one at a time is wrong."""

WRONG_FACTORS = (5.0, 0.2)
WRONG_VARIANTS = len(WRONG_FIGURES) * len(WRONG_FACTORS)

ROW = "row"
"""A column of its own, by which shuffled predictions know a strategy."""


def cold(landscape: Landscape) -> Chooser:
    return _chooser(landscape, landscape.machine, earlier=landscape.earlier.take(_none()))


def warm(landscape: Landscape, *, draw: int) -> Chooser:
    """With some rows of the stack known, drawn at random whatever their rate."""
    order = np.random.default_rng([KNOWN_BEFOREHAND, draw]).permutation(len(landscape.earlier))
    earlier = landscape.earlier.take(order[:KNOWN_BEFOREHAND])
    return _chooser(landscape, landscape.machine, earlier=earlier)


def wrong(landscape: Landscape, *, variant: int) -> Chooser:
    """With the `variant`-th of WRONG_FIGURES times WRONG_FACTORS."""
    factor_of, figure_of = divmod(variant, len(WRONG_FIGURES))
    figure, factor = WRONG_FIGURES[figure_of], WRONG_FACTORS[factor_of]
    machine = replace(landscape.machine, **{figure: factor * getattr(landscape.machine, figure)})
    return _chooser(landscape, machine, earlier=landscape.earlier.take(_none()))


def shuffled(landscape: Landscape, *, seed: int) -> Chooser:
    """With what the formulas say of each strategy said of another one; where strategies lie stays
    true, so that trials still tell about those like them."""
    order = np.random.default_rng(seed).permutation(len(landscape))
    return _chooser(
        landscape, landscape.machine, earlier=landscape.earlier.take(_none()), order=order
    )


def _none() -> Rows:
    return np.array([], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Shuffled(Quantity):
    """A quantity whose formulas are asked about another strategy than the one meant.

    Attributes:
        asked: columns of the strategy asked about in place of each.
        log_shift: shape (n,), added to the logarithm of the answer.
    """

    asked: Columns
    log_shift: Array

    def log_value(self, z: Array, columns: Columns, labelled: Array) -> Array:
        if not len(columns):
            return super().log_value(z, columns, labelled)
        rows = columns[ROW].astype(np.int64)
        value = super().log_value(z, self.asked.take(rows), labelled)
        return np.asarray(value + self.log_shift[rows])


def quantities(
    landscape: Landscape, machine: Machine, order: Rows | None
) -> tuple[Quantity, Quantity]:
    prior = Parameters.default(machine)
    if order is None:
        return (
            Quantity(machine=machine, prior=prior, of_memory=False),
            Quantity(machine=machine, prior=prior, of_memory=True),
        )
    asked = landscape.columns.take(order)
    rates_shift = landscape.log_tokens - landscape.log_tokens[order]
    return (
        Shuffled(machine, prior, of_memory=False, asked=asked, log_shift=rates_shift),
        Shuffled(machine, prior, of_memory=True, asked=asked, log_shift=np.zeros(len(order))),
    )


def _chooser(
    landscape: Landscape, machine: Machine, *, earlier: Measurements, order: Rows | None = None
) -> Chooser:
    of_time, of_memory = quantities(landscape, machine, order)
    candidates = numbered(landscape.columns)
    known: list[Revealed] = []

    def choose(latest: Revealed | None) -> int:
        known.extend([] if latest is None else [latest])
        rows = np.array([trial.row for trial in known], dtype=np.int64)
        seconds = np.array([_log_time(landscape, trial) for trial in known])
        here = Measurements(columns=candidates.take(rows), log_time=seconds)
        time, memory = _samples(earlier, here, machine)
        best = [trial.log_rate for trial in known if trial.log_rate is not None]
        score = _score(
            of_time,
            of_memory,
            time,
            memory,
            candidates,
            landscape.log_tokens,
            max(best, default=None),
        )
        score[rows] = -np.inf
        return int(np.argmax(score))

    return choose


def _log_time(landscape: Landscape, trial: Revealed) -> float:
    if trial.log_rate is None:
        return float("nan")
    return float(landscape.log_tokens[trial.row]) - trial.log_rate


def numbered(columns: Columns) -> Columns:
    numbers = np.arange(len(columns), dtype=np.float64)
    return Columns(values={**columns.values, ROW: numbers}, rows=len(columns))


def _samples(earlier: Measurements, here: Measurements, machine: Machine) -> tuple[Sample, Sample]:
    """What is known of time, and of memory: on which side of the limit it lay."""
    parts = [part for part in (earlier, here) if len(part)]
    columns = Columns.stack([part.columns for part in parts]) if parts else Columns.none()
    log_time = np.concatenate([earlier.log_time, here.log_time])
    ran = np.isfinite(log_time)
    timed = columns.take(np.flatnonzero(ran)) if ran.any() else Columns.none()
    limit = np.full(len(log_time), np.log(machine.memory_gib))
    return (
        Sample(columns=timed, log_value=log_time[ran], side=np.zeros(int(ran.sum()))),
        Sample(columns=columns, log_value=limit, side=np.where(ran, 1.0, -1.0)),
    )


def _score(
    of_time: Quantity,
    of_memory: Quantity,
    time: Sample,
    memory: Sample,
    candidates: Columns,
    log_tokens: Array,
    best: float | None,
) -> Array:
    log_time, variance, _ = Mixture.of(of_time, time).predict(candidates)
    size, _, size_variance = Mixture.of(of_memory, memory).predict(candidates, labelled=True)
    margin = np.log(of_memory.machine.memory_gib) - size
    log_fits = log_ndtr(margin / np.sqrt(size_variance + EDGE**2))
    mean, deviation = log_tokens - log_time, np.sqrt(variance)
    if best is None:
        return np.asarray(mean + 0.1 * log_fits)
    z = (mean - best) / deviation
    log_density = norm.logpdf(z)
    # z Phi(z) + phi(z), which cancels far below the best: there phi(z) / z^2 is left of it.
    gain = np.where(
        z > -5.0,
        np.log(np.maximum(z * norm.cdf(z) + np.exp(log_density), 1e-300)),
        log_density - 2.0 * np.log(np.maximum(np.abs(z), 1e-9)),
    )
    return np.asarray(np.log(deviation) + gain + 0.5 * log_fits)
