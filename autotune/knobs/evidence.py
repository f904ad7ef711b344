"""Gains of knobs, estimated from starts with and without them; noise and baseline with them.

The logarithm of a start's median step time is the baseline's, less the log gain, plus normal noise
of one scale. Most knobs do nothing, so that their starts show the baseline and the noise as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
import scipy

from autotune.cost_model.columns import Array

NOTHING = 0.8
"""Prior probability that a knob does nothing."""

FASTER = 0.72
"""Share of gains among effects: 55 of 76 published pairs that differ in one knob."""

EFFECT = 0.07
"""Mean size of an effect's logarithm, exponentially distributed: quartiles 0.02, 0.05 and 0.10; the
medians of 21 published knobs have 0.02, 0.06 and 0.10."""

NOISE, NOISE_SPREAD = 0.0025, 0.9
"""Median, and standard deviation of the logarithm, of the noise between medians of ten steps: as on
13 systems of MLPerf Training 5.0 and 5.1."""

FLOOR = 1.96 * math.sqrt(2.0)
"""Of the noise: 95 % of differences between two starts are smaller."""

LARGEST = 10.0
"""Of a log gain: twenty thousand times."""

_SIGMA = np.geomspace(2e-4, 1.0, 34)[:, None]
_OFFSET = np.linspace(-4.0, 4.0, 25)

Arm = TypeVar("Arm")


@dataclass(frozen=True, kw_only=True, eq=False)
class Effect:
    """The gain in rate of one arm: a value of a knob, or several knobs together.

    Attributes:
        starts: number of them.
        lead: observed log gain, shape (noise, baseline), for each noise and baseline they may have.
        error: its standard error.
        up, down: probabilities of noise, baseline and a gain, or a loss.
    """

    starts: int
    lead: Array
    error: Array
    up: Array
    down: Array

    @cached_property
    def faster(self) -> float:
        """Return the probability of a gain."""
        return float(self.up.sum())

    @cached_property
    def slower(self) -> float:
        return float(self.down.sum())

    @cached_property
    def saving(self) -> float:
        """Return the log gain to expect from using the arm only if it is faster."""
        return float(np.sum(self.up * self._size(1.0)))

    @cached_property
    def gain(self) -> float:
        """Return the relative gain to expect, shrunken towards nothing."""
        return math.expm1(self.saving - float(np.sum(self.down * self._size(-1.0))))

    @cached_property
    def interval(self) -> tuple[float, float]:
        """Return the relative gains between which it is with 80 %, to 0.001 %."""
        low, high = (
            scipy.optimize.bisect(
                lambda gain, level=level: self._below(gain) - level, -LARGEST, LARGEST, xtol=1e-6
            )
            for level in (0.1, 0.9)
        )
        return round(math.expm1(low), 5), round(math.expm1(high), 5)

    def _centre(self, sign: float) -> Array:
        return np.asarray(sign * self.lead / self.error - self.error / EFFECT)

    def _size(self, sign: float) -> Array:
        """Return the mean of a normal distribution cut off at zero."""
        centre = self._centre(sign)
        log_density = -0.5 * (centre**2 + np.log(2.0 * np.pi))
        return np.asarray(
            self.error * (centre + np.exp(log_density - scipy.special.log_ndtr(centre)))
        )

    def _below(self, log_gain: float) -> float:
        sign, share = (-1.0, self.down) if log_gain < 0.0 else (1.0, self.up)
        centre = self._centre(sign)
        beyond = np.exp(
            scipy.special.log_ndtr(centre - abs(log_gain) / self.error)
            - scipy.special.log_ndtr(centre)
        )
        mass = float(np.sum(share * beyond))
        return mass if log_gain < 0.0 else 1.0 - mass


@dataclass(frozen=True, kw_only=True)
class KnobEvidence(Generic[Arm]):
    """The effects of all arms at one micro-batch size.

    Attributes:
        noise: relative standard deviation between starts of the same thing.
    """

    noise: float
    effects: Mapping[Arm, Effect]

    @property
    def noise_floor(self) -> float:
        """Return the relative difference below which 95 % of pairs of equal starts are."""
        return FLOOR * self.noise

    @classmethod
    def of(
        cls, baseline: Sequence[float], arms: Mapping[Arm, Sequence[float]]
    ) -> KnobEvidence[Arm]:
        """Weigh median step times of the baseline's starts and of each arm's, at least one each."""
        own, logs = np.log(baseline), {arm: np.log(times) for arm, times in arms.items()}
        base = own.mean() + _SIGMA / np.sqrt(len(own)) * _OFFSET
        log_weight = _log_weight_of_noise([own, *logs.values()]) - 0.5 * _OFFSET**2
        parts = {}
        for arm, log in logs.items():
            lead, error = base - log.mean(), _SIGMA / np.sqrt(len(log))
            none = -0.5 * (lead / error) ** 2 - np.log(error * np.sqrt(2.0 * np.pi))
            none += np.log(NOTHING)
            up, down = (_log_side(sign * lead, error) for sign in (1.0, -1.0))
            up, down = up + np.log(FASTER), down + np.log(1.0 - FASTER)
            total = np.logaddexp(np.logaddexp(up, down), none)
            parts[arm] = (lead, error, up - total, down - total)
            log_weight = log_weight + total
        log_weight = log_weight - scipy.special.logsumexp(log_weight)
        return cls(
            noise=float(np.sum(np.exp(log_weight) * _SIGMA)),
            effects={
                arm: Effect(
                    starts=len(logs[arm]),
                    lead=lead,
                    error=error,
                    up=np.exp(log_weight + up),
                    down=np.exp(log_weight + down),
                )
                for arm, (lead, error, up, down) in parts.items()
            },
        )


def noise_floor(repeated: Sequence[Sequence[float]]) -> float:
    """Return the relative difference below which 95 % of pairs of equal starts are.

    Args:
        repeated: median step times of the starts of each thing that was started twice or more.
    """
    log_weight = _log_weight_of_noise([np.log(times) for times in repeated])
    weight = np.exp(log_weight - scipy.special.logsumexp(log_weight))
    return FLOOR * float(np.sum(weight * _SIGMA))


def _log_weight_of_noise(groups: Sequence[Array]) -> Array:
    residuals = np.concatenate([log - log.mean() for log in groups])
    prior = -0.5 * (np.log(_SIGMA / NOISE) / NOISE_SPREAD) ** 2
    likelihood = np.sum(residuals**2) / (2.0 * _SIGMA**2)
    return np.asarray(prior - (len(residuals) - len(groups)) * np.log(_SIGMA) - likelihood)


def _log_side(lead: Array, error: Array) -> Array:
    """Return the log density of a lead if its effect is exponentially distributed above zero."""
    tail = scipy.special.log_ndtr(lead / error - error / EFFECT)
    ratio = error / EFFECT
    return np.asarray(np.log((1.0 - NOTHING) / EFFECT) + ratio**2 / 2.0 - lead / EFFECT + tail)
