"""How certain the best layout is, and the rules that end a campaign's search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from autotune.cost_model.columns import Array
from autotune.measurement.objectives import BETTER
from autotune.schemas.choices import Objective
from autotune.schemas.requests import Budget
from autotune.search.belief import DOUBT, MARGIN, Belief
from autotune.words.quantities import plural, token_count


def reason_to_stop(budget: Budget, *, trials: int, node_hours: float, now: datetime) -> str | None:
    """Return why no further trial may start, as a sentence; None while the budget lasts.

    Args:
        trials: number of the search's trials, including running ones but not confirmations.
        node_hours: spent, and committed to running trials.
        now: compared with `budget.deadline`; a deadline without a time zone is in the zone of
            `now`.
    """
    if trials >= budget.max_trials:
        return f"Budget spent: {plural(budget.max_trials, 'trial')}."
    if budget.max_node_hours is not None and node_hours >= budget.max_node_hours:
        return f"Budget spent: {node_hours:.3g} of {budget.max_node_hours:g} node-hours."
    if budget.deadline is not None and now >= _in_zone_of(now, budget.deadline):
        return f"Deadline passed: {budget.deadline.isoformat(timespec='minutes')}."
    return None


def reason_to_be_content(outlook: Outlook | None, *, objective: Objective) -> str | None:
    """Return why another trial is not worth its cost, as a sentence; None if it may be.

    Args:
        outlook: None before any measurement. It is no reason to stop if every layout was tried:
            then there is nothing to propose.
    """
    if outlook is None or not outlook.untried or outlook.probability_better >= DOUBT:
        return None
    return (
        f"Little left to gain: less than a {100 * DOUBT:.0f} % chance that another layout is "
        f"{100 * MARGIN:.0f} % {BETTER[objective]}."
    )


def reason_to_spare(
    cost: float, *, saving: float, training: float, unit: str, tokens: float
) -> str | None:
    """Return why the next trial costs more than it is expected to save, as a sentence; None if it
    does not.

    Args:
        cost: expected cost of the trial.
        saving: share of the training's cost that it is expected to save.
        training: cost of `tokens` tokens with the best layout so far.
        unit: of both costs.
    """
    saved = saving * training
    if saved >= cost:
        return None
    return (
        f"Not worth another trial: it would cost {cost:.2g} {unit} and is expected to save "
        f"{saved:.2g} over {token_count(tokens)} tokens."
    )


def is_worth_confirming(rival: Rival, *, cost: float, training: float | None) -> bool:
    """Return whether to measure a runner-up once more.

    Args:
        cost: expected cost of the confirmation.
        training: cost of the full training in the same unit; if not given, a runner-up that may
            well be better is worth it.
    """
    if training is None:
        return rival.probability_better >= DOUBT
    return rival.expected_saving * training >= cost


def _in_zone_of(now: datetime, deadline: datetime) -> datetime:
    if (now.tzinfo is None) == (deadline.tzinfo is None):
        return deadline
    return deadline.replace(tzinfo=now.tzinfo)


DRAWS = 2000
RIVALS = 200
"""Untried layouts that are drawn together, those most likely to be the best."""


WARRANTED = 0.25
"""Factor on the odds, drawn from the belief, that something is better. The draws overestimate the
difference between layouts that were tried and others: on published grids, with the data sheet right
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
    likely = belief.log_probability_better(best_log_rate)
    return np.sort(np.argsort(-likely, kind="stable")[:RIVALS])
