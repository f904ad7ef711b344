"""The probability that the best measured layout is the best of all, and what is left to gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autotune.cost_model.columns import Array
from autotune.search.belief import MARGIN, Belief

DRAWS = 2000
RIVALS = 200
"""Untried layouts that are drawn together, those most likely to be the best."""


WARRANTED = 0.25
"""Odds that something is better, against the odds by the draws. Between what was tried and what was
not, the draws leave more open than turns out to be: on published grids, with the data sheet right
or one of its figures five times off, drawn probabilities of 0.14, 0.29, 0.53 and 0.87 came true in
0.05, 0.09, 0.22 and 0.45 of the cases (`tests/benchmarks/search_replay.py`)."""


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """The best measured layout compared with all others, tried or not.

    Attributes:
        untried: number of layouts that were not tried.
        probability_best: probability that none is better.
        probability_better: probability that an untried one is better by MARGIN or more.
        expected_gain: relative gain in rate if the best of all were known and used.
    """

    untried: int
    probability_best: float
    probability_better: float
    expected_gain: float

    @classmethod
    def of(cls, belief: Belief, *, best: int, measured: Sequence[int], seed: int) -> Outlook:
        """Draw the rates of the best, of other measured layouts and of the most promising untried
        ones jointly.

        Args:
            best: index of the candidate with the best measured objective.
            measured: candidates with a successful trial, including `best`.
            seed: of the draws.
        """
        generator = np.random.default_rng([seed, len(measured)])
        others = [row for row in measured if row != best]
        rivals = _rivals(belief, best_log_rate=float(_log_rate(belief, best)))
        rows = np.array([best, *others, *belief.rows[rivals]], dtype=np.int64)
        calibration, columns = belief.calibration, belief.columns
        times = calibration.time.draws(columns.take(rows), count=DRAWS, generator=generator)
        fits = calibration.draws_of_fitting(
            belief.memory.take(belief.rows[rivals]),
            count=DRAWS,
            generator=generator,
            headroom_gib=belief.headroom_gib,
        )
        rates = belief.log_work[rows] - times
        untried = np.where(fits, rates[:, 1 + len(others) :], -np.inf)
        untried = untried.max(axis=1, initial=-np.inf)
        tried = rates[:, : 1 + len(others)].max(axis=1)
        above = np.maximum(untried, tried) - rates[:, 0]
        drawn = float(np.mean(above > 0.0))
        gain = float(np.mean(np.expm1(np.minimum(np.maximum(above, 0.0), 3.0))))
        return cls(
            untried=len(belief.rows),
            probability_best=1.0 - _warranted(drawn),
            probability_better=_warranted(float(np.mean(untried - rates[:, 0] > np.log1p(MARGIN)))),
            expected_gain=gain * _warranted(drawn) / drawn if drawn else 0.0,
        )


def _warranted(drawn: float) -> float:
    """Return the probability, tempered by how often such draws come true."""
    return WARRANTED * drawn / (1.0 - drawn + WARRANTED * drawn)


@dataclass(frozen=True, kw_only=True)
class Rival:
    """A measured layout compared with the best.

    Attributes:
        probability_better: probability that it is better by MARGIN or more, beyond measurement
            noise.
        expected_saving: share of a training's time saved on average by knowing both rates and using
            the higher.
    """

    probability_better: float
    expected_saving: float

    @classmethod
    def all_of(cls, rates: Array) -> list[Rival]:
        """Return a rival for each of n - 1 layouts.

        Args:
            rates: shape (draws, n), joint draws of the logarithm of the objective, the best's
                first.
        """
        leads = (rates[:, 1:] - rates[:, :1]).T
        return [
            cls(
                probability_better=float(np.mean(lead > np.log1p(MARGIN))),
                expected_saving=float(np.mean(-np.expm1(-np.maximum(lead, 0.0)))),
            )
            for lead in leads
        ]


def _log_rate(belief: Belief, row: int) -> float:
    columns = belief.columns.take(np.array([row]))
    return float(belief.log_work[row] - belief.calibration.time.mean(columns)[0])


def _rivals(belief: Belief, *, best_log_rate: float) -> Array:
    """Return positions in `belief.rows` of the RIVALS most likely to be better."""
    likely = belief.log_probability_better(best_log_rate)
    return np.sort(np.argsort(-likely, kind="stable")[:RIVALS])
