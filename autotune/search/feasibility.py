"""What fits: the cost model's memory estimate, corrected by what the trials of a campaign showed.

The measured peak is taken to be `scale x estimate x noise`, both log-normal. `scale` is common to
the campaign (the estimate forgets something on this machine and software), `noise` is the
layout's own. Each measured peak tells about both; a trial that ran out of memory tells that its
peak would have been above the limit, one that ran without a reading that it was below. The
posterior over a grid of (scale, noise) gives each layout a probability to fit, which falls with its
estimate and is never zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from autotune.search.layouts import Floats, Integers, Layouts
from autotune.search.trial import SearchTrial

MAY_FIT = 0.1
"""A layout is chosen among as long as it fits with this probability; of the others one is tried
only while nothing at all has run."""

CAUTION = 0.1
"""What a layout loses for its risk: CAUTION times the logarithm of its probability to fit, in log
rate. An even chance has to promise 7 % more, one in ten 26 %."""

HOPELESS = 0.02
HOPELESS_MARGIN = 1.25
"""A layout is ruled out when its probability is below HOPELESS *and* its estimate is more than
HOPELESS_MARGIN times the smallest estimate that ran out of memory. Both, so that no estimate alone
rules anything out: published estimates are 20 % off before they are calibrated."""

_LOG_SCALES = np.linspace(-2.0, 2.0, 161)
_NOISES = np.array([0.03, 0.06, 0.12, 0.25])
_EDGE = 0.02
"""Spread (in log) of the limit itself: fragmentation decides the last few per cent."""


def _log_prior() -> Floats:
    """Return the prior of (scale, noise): within 15 % mostly, with a tail for far-off estimates."""
    near = np.exp(-0.5 * (_LOG_SCALES / 0.15) ** 2) / 0.15
    far = np.exp(-0.5 * (_LOG_SCALES / 0.7) ** 2) / 0.7
    return np.repeat(np.log(0.8 * near + 0.2 * far)[:, None], len(_NOISES), axis=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryBelief:
    """The posterior over (scale, noise), shape (161, 4), summing to one."""

    posterior: Floats
    log_limit: float

    @classmethod
    def learn(
        cls, layouts: Layouts, rows: Integers, observed: Sequence[SearchTrial]
    ) -> MemoryBelief:
        """Learn from trials of the layouts `rows`; running ones say nothing."""
        log_limit = float(np.log(layouts.memory_limit_gib))
        log_posterior = _log_prior()
        for row, trial in zip(rows, observed, strict=True):
            log_estimate = float(np.log(layouts.memory_gib[row]))
            log_posterior = log_posterior + _log_likelihood(trial, log_estimate, log_limit)
        weights = np.exp(log_posterior - log_posterior.max())
        return cls(posterior=weights / weights.sum(), log_limit=log_limit)

    @property
    def scale(self) -> float:
        """Posterior median of measured peak over estimate."""
        cumulative = np.cumsum(self.posterior.sum(axis=1))
        return float(np.exp(_LOG_SCALES[np.searchsorted(cumulative, 0.5)]))

    def probability_to_fit(self, memory_gib: Floats) -> Floats:
        """Return the probability for layouts with these estimates, shape (n,)."""
        if not len(memory_gib):
            return np.zeros(0)
        # It depends on the estimate alone, so a few hundred nodes serve a lattice of any size.
        log_memory = np.log(memory_gib)
        nodes = np.linspace(log_memory.min(), log_memory.max() + 1e-9, 400)
        margin = self.log_limit - nodes[:, None, None] - _LOG_SCALES[None, :, None]
        fits = ndtr(margin / np.hypot(_NOISES, _EDGE)[None, None, :])
        probability = np.einsum("nsk,sk->n", fits, self.posterior)
        return np.asarray(np.interp(log_memory, nodes, probability))


def _log_likelihood(trial: SearchTrial, log_estimate: float, log_limit: float) -> Floats:
    """Return the log likelihood of one trial, shape (161, 4)."""
    centre = log_estimate + _LOG_SCALES[:, None]
    noise = _NOISES[None, :]
    if trial.state == "ok" and trial.peak_memory_gib:
        z = (np.log(trial.peak_memory_gib) - centre) / noise
        return np.asarray(-0.5 * z**2 - np.log(noise))
    margin = (log_limit - centre) / np.hypot(noise, _EDGE)
    if trial.state == "ok":
        return np.asarray(np.log(np.maximum(ndtr(margin), 1e-12)))
    if trial.out_of_memory:
        return np.asarray(np.log(np.maximum(ndtr(-margin), 1e-12)))
    return np.zeros((len(_LOG_SCALES), len(_NOISES)))


def risk(probability: Floats) -> Floats:
    """Return what each layout's log rate is lowered by for the chance that it does not fit, shape
    (n,)."""
    return np.asarray(-CAUTION * np.log(np.maximum(probability, 1e-3)))


def hopeless(layouts: Layouts, probability: Floats, rows: Integers) -> NDArray[np.bool_]:
    """Return what `rows`, all of which ran out of memory, rule out, shape (n,)."""
    if not len(rows):
        return np.zeros(len(layouts), dtype=np.bool_)
    least = layouts.memory_gib[rows].min()
    far_beyond = layouts.memory_gib > HOPELESS_MARGIN * least
    return np.asarray((probability < HOPELESS) & far_beyond, dtype=np.bool_)
