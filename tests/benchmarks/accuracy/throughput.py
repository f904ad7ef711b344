"""How far predicted step times are off, and what is lost by believing them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import kendalltau

from autotune.calibration.calibration import Z
from autotune.calibration.mixture import Mixture
from autotune.calibration.quantity import Quantity
from autotune.calibration.sample import Sample
from autotune.cost_model.columns import Array, Columns, Rows
from tests.benchmarks.accuracy.configurations import no_zero, samples
from tests.benchmarks.accuracy.facts import Facts
from tests.benchmarks.accuracy.hardware import unknown_gpu
from tests.benchmarks.accuracy.stacks import (
    LEAST_ROWS,
    NOT_DESCRIBED,
    RESULTS,
    LeftOut,
    Stack,
    independent,
    named,
    noise_floor,
    offloaded,
    shaped,
    split_rows,
    stacks_of,
)
from tests.benchmarks.accuracy.tables import PublishedRow

SIZES = (3, 5, 10, 20)
"""Trials that a calibration has."""
COVERED = (5, 10, 20)
"""Those after which intervals are checked."""
RANKED = 5
"""Those after which strategies are ranked."""
LEAST_HELD_OUT = 4
"""Rows that must be left to test on."""
LEAST_STRATEGIES = 5
"""Strategies of a landscape."""
MOST_OF_OTHER_MODELS = 60
"""Rows of other models that a calibration for a new one has: fitting takes the cube of it."""

SEED = 0


@dataclass(frozen=True, kw_only=True)
class StackAccuracy:
    """Fractions; None where a stack had no rows for it.

    Attributes:
        rows, models: independent rows, and how many models they are of.
        mape_after: by the number of trials.
        leave_one_model_out_mape: of each model after calibration on the others.
        coverage_80: share of held-out rows within their 80 % interval.
        kendall_tau, top1_regret_after_5: mean, and median, over landscapes and draws.
        same_batch_regret_after_5: the median over landscapes whose global batch is fixed, too.
        landscapes: how many there are.
        noise_floor: error of the median of rows that agree in everything.
    """

    rows: int
    models: int
    zero_shot_mape: float
    mape_after: dict[int, float | None]
    leave_one_model_out_mape: float | None
    coverage_80: float | None
    kendall_tau: float | None
    top1_regret_after_5: float | None
    same_batch_regret_after_5: float | None
    landscapes: int
    noise_floor: float | None


def stacks(rows: Sequence[PublishedRow], facts: Facts) -> tuple[dict[str, Stack], LeftOut]:
    """What can be judged, and which rows were left out for which reason."""
    usable, left_out = split_rows(
        rows,
        {
            "on a GPU whose data sheet is not known": unknown_gpu,
            **NOT_DESCRIBED,
            "out of memory or not ended": lambda row: row["status"] != "ok",
            "no iteration time": lambda row: not row.known("iteration_time_s"),
            "offload to the host, not covered": offloaded,
            "no shape or layout": lambda row: not shaped(row, facts),
        },
    )
    alone = independent(usable)
    results = stacks_of(alone, facts, zero_stage=no_zero)
    judged = [stack for stack in results if len(stack) >= LEAST_ROWS]
    too_few = [row for stack in results if len(stack) < LEAST_ROWS for row in stack.rows]
    left_out |= {row: "not independent" for row in usable if row not in set(alone)}
    left_out |= dict.fromkeys(too_few, f"in a stack of fewer than {LEAST_ROWS}")
    return named(judged), left_out


def accuracy(stack: Stack, *, draws: int) -> StackAccuracy:
    """All figures of one stack.

    Args:
        draws: random choices of trials for each size; the same ones in every run.
    """
    trials = Trials(stack)
    landscapes, of_a_batch = (list(_landscapes(stack, same_batch=b)) for b in (False, True))
    errors: dict[int, list[float]] = defaultdict(list)
    within: list[float] = []
    ranks: list[tuple[float, float]] = []
    of_a_batch_ranks: list[tuple[float, float]] = []
    for size, drawn, rest in _draws(stack, draws=draws):
        log_time, width = trials.forecast(drawn)
        errors[size].append(mape(trials.log_time[rest], log_time[rest]))
        if size in COVERED:
            within += list(np.abs(trials.log_time - log_time)[rest] <= width[rest])
        if size == RANKED:
            ranks += trials.ranks(log_time, landscapes)
            of_a_batch_ranks += trials.ranks(log_time, of_a_batch)
    return StackAccuracy(
        rows=len(stack),
        models=len(set(_models(stack))),
        zero_shot_mape=mape(trials.log_time, trials.forecast(np.array([], dtype=np.int64))[0]),
        mape_after={size: mean(errors[size]) for size in SIZES},
        leave_one_model_out_mape=_left_out_model(stack, trials),
        coverage_80=mean(within),
        kendall_tau=mean([tau for tau, _ in ranks if np.isfinite(tau)]),
        top1_regret_after_5=_median_regret(ranks),
        same_batch_regret_after_5=_median_regret(of_a_batch_ranks),
        landscapes=len(landscapes),
        noise_floor=noise_floor(stack, "iteration_time_s"),
    )


class Trials:
    """Calibrations on some rows of a stack."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.quantity = Quantity(machine=stack.machine, prior=stack.prior, of_memory=False)
        self.columns = stack.columns
        self.log_time = np.log(stack.figures("iteration_time_s"))
        self._log_samples = np.log([samples(row) for row in stack.rows])

    def forecast(self, drawn: Rows, weight: Array | float = 1.0) -> tuple[Array, Array]:
        """Logarithm of the median and half the width of the 80 % interval, shape (n,) each, of all
        rows, after calibration on those `drawn`, with these weights."""
        known = self.columns.take(drawn) if len(drawn) else Columns.none()
        sample = Sample(
            columns=known,
            log_value=self.log_time[drawn],
            side=np.zeros(len(drawn)),
            weight=weight,
        )
        log_time, _, variance = Mixture.of(self.quantity, sample).predict(self.columns)
        return log_time, Z * np.sqrt(variance)

    def ranks(self, log_time: Array, landscapes: Sequence[list[Rows]]) -> list[tuple[float, float]]:
        """`rank` of each landscape by seconds for each sample."""
        measured, predicted = self.log_time - self._log_samples, log_time - self._log_samples
        return [rank(measured, predicted, landscape) for landscape in landscapes]


def mape(log_measured: Array, log_predicted: Array) -> float:
    """Mean absolute error as a fraction of what was measured."""
    return float(np.mean(np.abs(np.expm1(log_predicted - log_measured))))


def mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _draws(stack: Stack, *, draws: int) -> Iterator[tuple[int, Rows, Rows]]:
    """Number of trials, those, and the rest; each number's draws are its own."""
    for size in (size for size in SIZES if len(stack) >= size + LEAST_HELD_OUT):
        for draw in range(draws):
            order = np.random.default_rng([SEED, draw, size]).permutation(len(stack))
            yield size, order[:size], order[size:]


def _models(stack: Stack) -> list[str]:
    return [row["model"] for row in stack.rows]


def _left_out_model(stack: Stack, trials: Trials) -> float | None:
    """Each model predicted from the others' rows, at most 60 of them, drawn at random."""
    models = np.array(_models(stack))
    if len(set(models)) == 1:
        return None
    errors: list[float] = []
    for model in sorted(set(models)):
        others = np.flatnonzero(models != model)
        drawn = np.random.default_rng(SEED).permutation(others)[:MOST_OF_OTHER_MODELS]
        log_time = trials.forecast(drawn)[0]
        errors += list(np.abs(np.expm1(log_time - trials.log_time))[models == model])
    return mean(errors)


def _landscapes(stack: Stack, *, same_batch: bool) -> Iterator[list[Rows]]:
    """Questions that a search would be asked: model, GPUs and sequence alike, and the global batch.

    Each as a list of its strategies, each of these as its rows: one, or several where it was
    measured again.
    """
    questions: dict[tuple[object, ...], dict[tuple[object, ...], list[int]]] = defaultdict(dict)
    for number, row in enumerate(stack.rows):
        batch = samples(row) if same_batch else None
        strategies = questions[*_question(stack, number), batch]
        strategies.setdefault(row.without(*RESULTS), []).append(number)
    for strategies in questions.values():
        if len(strategies) >= LEAST_STRATEGIES:
            yield [np.array(rows) for rows in strategies.values()]


def _question(stack: Stack, number: int) -> tuple[object, ...]:
    gpus, length = (float(stack.columns[name][number]) for name in ("world_size", "seq_length"))
    return stack.rows[number]["model"], gpus, length


def rank(
    log_measured: Array, log_predicted: Array, landscape: Sequence[Rows]
) -> tuple[float, float]:
    """Kendall's tau of the rates, and the share of the best rate lost by taking the predicted best.

    Args:
        log_measured, log_predicted: logarithms of the seconds for each sample, of all rows.
    """
    measured = np.array([np.median(log_measured[rows]) for rows in landscape])
    predicted = np.array([log_predicted[rows[0]] for rows in landscape])
    regret = -float(np.expm1(measured.min() - measured[predicted.argmin()]))
    return float(kendalltau(measured, predicted).statistic), regret


def _median_regret(ranks: Sequence[tuple[float, float]]) -> float | None:
    return float(np.median([regret for _, regret in ranks])) if ranks else None
