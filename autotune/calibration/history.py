"""Select and weight a machine's earlier trials for a new campaign, and report how much they
improved its forecasts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.calibration.calibration import Calibration
from autotune.calibration.observations import Observation, time_sample
from autotune.calibration.posterior import LENGTH, coordinates, shared
from autotune.calibration.sample import USUAL_NOISE
from autotune.cost_model.columns import Array, Columns
from autotune.schemas.calibrations import ObservationShape
from search_spaces.lattice import Lattice
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

MOST_EARLIER = 150
"""Maximum number of earlier observations of a campaign: the time of a fit grows with their cube."""

NOISE_SHARE = 0.14
"""Variance of a measurement over the variance of the formulas' residual (`mixture.USUAL`)."""

RELEASES = (0.10, 0.03, 0.01)
"""Assumed standard deviations of the logarithm of a strategy's time per step of a package's major,
minor and patch version."""

YEAR = 0.03
"""The same per year, for drivers, firmware and network, whose versions are not recorded; assumed.
"""

UNCOUNTED = frozenset({"python"})
"""Packages whose version does not affect the time."""

NEAR = 2 / 3
"""Share of the trials that is chosen for lying near the strategies in question; the rest is chosen
from everywhere, because machine constants apply to any strategy."""

_VERSION = re.compile(r"v?(\d+(?:\.\d+)*)[^+]*(?:\+([a-z]*)([\w.]*))?")


@dataclass(frozen=True, kw_only=True)
class EarlierTrial:
    """An earlier trial, before its measurements are read.

    Attributes:
        versions: package -> version that the trial ran with; empty if unknown.
        age_days: age when the new campaign begins.
    """

    transformer: Transformer
    strategy: Strategy
    versions: Mapping[str, str]
    age_days: float


def weight_of(versions: Mapping[str, str], *, among: Mapping[str, str], age_days: float) -> float:
    """Return the weight in (0, 1] of a trial that ran some time ago or with other software
    versions.

    Each version step, and time, adds its variance to a measurement's, as in a random walk:
    the weight is one half when the change since then varies as much as a repeated measurement.

    Args:
        among: versions of the trials that it is combined with.
    """
    packages = (set(versions) | set(among)) - UNCOUNTED if versions and among else set()
    variance = YEAR**2 * max(age_days, 0.0) / 365.25
    variance += sum(
        _change(versions.get(package), among.get(package)) ** 2 for package in sorted(packages)
    )
    if bool(versions) != bool(among):
        variance += RELEASES[1] ** 2  # as for one minor release
    return USUAL_NOISE**2 / (USUAL_NOISE**2 + variance)


def _change(one: str | None, other: str | None) -> float:
    """Return the standard deviation between two versions; one minor release if either is unknown or
    unreadable."""
    if one == other:
        return 0.0
    read = [_VERSION.match(version or "") for version in (one, other)]
    if read[0] is None or read[1] is None:
        return RELEASES[1]
    numbers = [[int(part) for part in match[1].split(".")] for match in read if match]
    longest = max(len(RELEASES), *map(len, numbers))
    padded = [each + [0] * (longest - len(each)) for each in numbers]
    variance = 0.0
    for place, (a, b) in enumerate(zip(*padded, strict=True)):
        if a != b:
            variance = abs(a - b) * RELEASES[min(place, 2)] ** 2
            break
    # The local version names the GPU libraries: 2.5.1+cu124, 2.5.1+rocm6.2, 2.5.1+cpu.
    kinds, suffixes = ([match[group] for match in read if match] for group in (2, 3))
    if kinds[0] != kinds[1]:
        variance += RELEASES[0] ** 2
    elif suffixes[0] != suffixes[1]:
        variance += RELEASES[1] ** 2
    return float(np.sqrt(variance))


def most_informative(
    earlier: Sequence[EarlierTrial],
    weights: Sequence[float],
    *,
    transformer: Transformer,
    lattice: Lattice,
    most: int = MOST_EARLIER,
) -> list[int]:
    """Return the indices of the most informative trials, most informative first.

    Trials are chosen greedily by the reduction in variance of a Gaussian process (a pivoted
    Cholesky decomposition), so repetitions come last. All but the last third are also weighted by
    their distance from the strategies in question.

    Args:
        weights: weight of each trial, see `weight_of`.
        lattice: the strategies in question, of `transformer`.
    """
    if not earlier or not len(lattice):
        return list(range(min(len(earlier), most)))
    places = _places(earlier, gpus_per_node=lattice.gpus_per_node)
    candidates = coordinates(Columns.of(transformer, lattice))
    outside = np.maximum(candidates.min(axis=0) - places, places - candidates.max(axis=0))
    distance = np.linalg.norm(np.maximum(outside, 0.0), axis=1)
    count = min(len(earlier), most)
    relevance = np.ones((count, len(earlier)))
    relevance[: round(NEAR * count)] = np.exp(-distance / LENGTH)
    noise = NOISE_SHARE / np.asarray(weights, dtype=np.float64)
    return _chosen_greedily(places, relevance, noise)


def _places(earlier: Sequence[EarlierTrial], *, gpus_per_node: int) -> Array:
    rows: dict[Transformer, list[int]] = {}
    for row, trial in enumerate(earlier):
        rows.setdefault(trial.transformer, []).append(row)
    parts = [
        coordinates(
            Columns.of(
                transformer,
                Lattice.of([earlier[row].strategy for row in own], gpus_per_node=gpus_per_node),
            )
        )
        for transformer, own in rows.items()
    ]
    places = np.empty((len(earlier), parts[0].shape[1]))
    places[[row for own in rows.values() for row in own]] = np.concatenate(parts)
    return places


def _chosen_greedily(places: Array, relevance: Array, noise: Array) -> list[int]:
    """Return the rows chosen greedily, each given those before it.

    Args:
        relevance: shape (k, n), relevance of each row at each of the k choices.
        noise: shape (n,), variance of a measurement over the prior variance.
    """
    unknown = np.ones(len(places))
    factors = np.empty(relevance.shape)
    free: NDArray[np.bool_] = np.ones(len(places), dtype=bool)
    chosen: list[int] = []
    for number in range(len(relevance)):
        gain = np.where(free, relevance[number] * unknown**2 / (unknown + noise), -1.0)
        row = int(np.argmax(gain))
        known = factors[:number].T @ factors[:number, row]
        common = shared(places[row : row + 1], places)[0] - known
        factors[number] = common / np.sqrt(unknown[row] + noise[row])
        unknown = np.maximum(unknown - factors[number] ** 2, 0.0)
        free[row] = False
        chosen.append(row)
    return chosen


@dataclass(frozen=True, kw_only=True)
class ForecastErrors:
    """Errors of forecasts made before a campaign's first trial, relative to its measurements.

    Attributes:
        trials: number of timed trials.
        without, given: median relative error of the time, without and with the earlier trials.
    """

    trials: int
    without: float
    given: float


def forecast_errors(
    earlier: Calibration, measured: Sequence[Observation], *, without: Calibration
) -> ForecastErrors | None:
    """Compare forecasts with and without earlier trials.

    Args:
        earlier: fitted to the earlier trials, and to no others.
        measured: observations of the campaign's own trials.
        without: the same forecast without earlier trials.

    Returns:
        None if no step was timed.
    """
    machine = earlier.machine
    sample = time_sample(measured, machine)
    if not len(sample.columns):
        return None
    error_without, error_with = (
        calibration.time.predict(sample.columns)[0] - sample.log_value
        for calibration in (without, earlier)
    )
    return ForecastErrors(
        trials=len(sample.columns), without=_typical(error_without), given=_typical(error_with)
    )


def _typical(log_errors: Array) -> float:
    return float(np.expm1(np.median(np.abs(log_errors))))


OBSERVED = (
    "iteration_time_s",
    "peak_memory_gib",
    "peak_allocated_gib",
    "fitted",
    "gpu_joules_per_token",
)


def observation_shape(observation: Observation) -> ObservationShape:
    """Return an observation as it is stored."""
    return ObservationShape(
        model=observation.transformer,
        strategy=observation.strategy,
        **{name: getattr(observation, name) for name in OBSERVED},
    )


def observation_of(shape: ObservationShape) -> Observation:
    """Return a stored observation."""
    return Observation(
        transformer=shape.model,
        strategy=shape.strategy,
        **{name: getattr(shape, name) for name in OBSERVED},
    )
