"""What earlier trials of a machine say to a new question: how much each counts, which ones are
taken, and what they were worth."""

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
from search_spaces.lattice import Lattice
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

MOST_EARLIER = 150
"""Observations that a campaign starts from: the time of a fit grows with their cube."""

NOISE_SHARE = 0.14
"""Variance of a measurement over that of what formulas leave open (`mixture.USUAL`)."""

RELEASES = (0.10, 0.03, 0.01)
"""By how much a step of a package's major, minor and patch number moves the time of a strategy:
standard deviations of its logarithm, assumed."""

YEAR = 0.03
"""The same for a year of drivers, firmware and network, whose versions nothing records; assumed."""

UNCOUNTED = frozenset({"python"})
"""Packages that trials name and that leave their time alone."""

NEAR = 2 / 3
"""Share of them that is chosen for lying near the question; the rest is chosen from everywhere, as
constants of the machine carry over to any strategy."""

_VERSION = re.compile(r"v?(\d+(?:\.\d+)*)[^+]*(?:\+([a-z]*)([\w.]*))?")


@dataclass(frozen=True, kw_only=True)
class EarlierTrial:
    """What is known of an earlier trial before its figures are read.

    Attributes:
        versions: of what it ran with, by package; empty where they are not known.
        age_days: when the new campaign begins.
    """

    transformer: Transformer
    strategy: Strategy
    versions: Mapping[str, str]
    age_days: float


def weight_of(versions: Mapping[str, str], *, among: Mapping[str, str], age_days: float) -> float:
    """Return what a trial counts that ran with other versions, and some time ago, in (0, 1].

    Each step of a version, and time, adds its variance to that of a measurement, as in a random
    walk: a trial counts half where what has changed since is as large as what varies anyway.

    Args:
        among: versions of the trials that it is to stand beside.
    """
    packages = (set(versions) | set(among)) - UNCOUNTED if versions and among else set()
    variance = YEAR**2 * max(age_days, 0.0) / 365.25
    variance += sum(
        _change(versions.get(package), among.get(package)) ** 2 for package in sorted(packages)
    )
    if bool(versions) != bool(among):
        variance += RELEASES[1] ** 2  # as if one thing had changed a little
    return USUAL_NOISE**2 / (USUAL_NOISE**2 + variance)


def _change(one: str | None, other: str | None) -> float:
    """Return the standard deviation that lies between two versions; one that is not known, or makes
    no sense, is taken to be a minor release away."""
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
    # A build's own suffix names the GPU's libraries: 2.5.1+cu124, 2.5.1+rocm6.2, 2.5.1+cpu.
    kinds, suffixes = ([match[group] for match in read if match] for group in (2, 3))
    if kinds[0] != kinds[1]:
        variance += RELEASES[0] ** 2
    elif suffixes[0] != suffixes[1]:
        variance += RELEASES[1] ** 2
    return float(np.sqrt(variance))


def telling(
    earlier: Sequence[EarlierTrial],
    weights: Sequence[float],
    *,
    transformer: Transformer,
    lattice: Lattice,
    most: int = MOST_EARLIER,
) -> list[int]:
    """Return the places of the trials that say most of a question, the most telling first.

    Each in turn is the one from which most is learned given those before it: it counts much, is
    unlike what is chosen already (the greatest reduction of variance of a Gaussian process; a
    pivoted Cholesky decomposition), and lies near the strategies asked about, which the last third
    need not. So repetitions come last.

    Args:
        weights: of each, see `weight_of`.
        lattice: the strategies asked about, of `transformer`.
    """
    if not earlier or not len(lattice):
        return list(range(min(len(earlier), most)))
    places = _places(earlier, gpus_per_node=lattice.gpus_per_node)
    asked = coordinates(Columns.of(transformer, lattice))
    outside = np.maximum(asked.min(axis=0) - places, places - asked.max(axis=0))
    distance = np.linalg.norm(np.maximum(outside, 0.0), axis=1)
    count = min(len(earlier), most)
    relevance = np.ones((count, len(earlier)))
    relevance[: round(NEAR * count)] = np.exp(-distance / LENGTH)
    noise = NOISE_SHARE / np.asarray(weights, dtype=np.float64)
    return _most_informative(places, relevance, noise)


def _places(earlier: Sequence[EarlierTrial], *, gpus_per_node: int) -> Array:
    """Return where the trials lie, shape (n, d), read model by model."""
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


def _most_informative(places: Array, relevance: Array, noise: Array) -> list[int]:
    """Return the rows chosen one after another, each given those before it.

    Args:
        relevance: shape (k, n), of each row when the first of k is chosen, the second, and so on.
        noise: shape (n,), variances of what would be measured, over that of what is to be known.
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
    """How far forecasts made before a campaign's first trial lay from what its trials measured.

    Attributes:
        trials: that were timed.
        without, given: medians of the relative error of the time, from general knowledge alone and
            given the earlier trials.
    """

    trials: int
    without: float
    given: float


def forecast_errors(
    earlier: Calibration, measured: Sequence[Observation], *, without: Calibration
) -> ForecastErrors | None:
    """Compare the forecast given earlier trials with the one without them.

    Args:
        earlier: fitted to the earlier trials alone.
        measured: what the campaign's own trials have shown.
        without: what the campaign believed without the earlier trials.

    Returns:
        None where no step was timed.
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
    """Return the median relative error."""
    return float(np.expm1(np.median(np.abs(log_errors))))
