"""Step times of models of 2025 and 2026: mixtures of experts, long contexts, 8 and 4 bits.

A stack is one release of one program on one kind of GPU, of which tables have few rows; so figures
are means over rows, not over stacks. Rows that no strategy describes are predicted as if what
cannot be said were not there, and count in `zero_shot_mape_all` alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from autotune.calibration.history import weight_of
from autotune.cost_model.columns import Array, Rows
from search_spaces.transformer import MODULES
from tests.benchmarks.accuracy.configurations import data_parallel, modules, no_zero
from tests.benchmarks.accuracy.facts import Facts
from tests.benchmarks.accuracy.hardware import kind_of, unknown_gpu
from tests.benchmarks.accuracy.stacks import LeftOut, Stack, shaped, split_rows, stacks_of
from tests.benchmarks.accuracy.tables import PublishedRow
from tests.benchmarks.accuracy.throughput import SEED, Trials, mean

TRIALS = 5
LEAST_LEFT = 2
"""Rows of a stack that must be left to judge a calibration on TRIALS of them."""

PARTS = 10
"""Into which rows are divided to be left out in turn."""

CORE = "core_attn"
PROGRAM = "program"


def _unknown_module(row: PublishedRow) -> bool:
    return not set(modules(row)) <= {*MODULES, CORE}


def _contradictory(row: PublishedRow) -> bool:
    samples = row.number("global_batch_size")
    return samples is not None and samples < data_parallel(row)


NOT_DESCRIBABLE: Mapping[str, Callable[[PublishedRow], bool]] = {
    "states or activations offloaded to the host": lambda row: bool(row.number("offload")),
    "tokens above an expert's capacity dropped": lambda row: row["routing"].startswith("token"),
    "attention in 8 bits": lambda row: bool(row.number("fp8_attention")),
    "some layers recomputed, others not": lambda row: bool(row.number("recompute_num_layers")),
    "a module recomputed that no strategy names": _unknown_module,
    "fewer samples than replicas": _contradictory,
}
"""What no strategy says."""


@dataclass(frozen=True, kw_only=True)
class TimesOf2026:
    """Errors are means of absolute ones over rows, as fractions; None where no row tells.

    Attributes:
        rows: with a time, and enough of a shape and layout to be predicted at all.
        describable: of these, those of which a strategy says all that a table does.
        mape_after_5: of describable rows of a stack, after calibration on five others of it.
        leave_one_model_out_mape: after calibration on the other models of the program on this kind
            of GPU, of any release, weighted by it.
        in_stack_mape: after calibration on all other describable rows of the program on this kind
            of GPU, of any release, weighted by it.
        context_parallel_mape: of rows with context parallelism, after calibration on all other rows
            of their stack.
        coverage_80: share of the rows of `mape_after_5` within their 80 % interval.
        left_out: reason -> rows that are not predicted, or not describable.
    """

    rows: int
    describable: int
    zero_shot_mape_describable: float | None
    zero_shot_mape_all: float | None
    mape_after_5: float | None
    leave_one_model_out_mape: float | None
    in_stack_mape: float | None
    context_parallel_mape: float | None
    coverage_80: float | None
    left_out: Mapping[str, int]


def judge(rows: Sequence[PublishedRow], *, draws: int) -> TimesOf2026:
    """Return all figures.

    Args:
        draws: random choices of TRIALS rows of each stack; the same ones in every run.
    """
    facts = Facts.of(rows)
    predicted, left_out = predictable(rows, facts)
    described, not_described = split_rows(predicted, NOT_DESCRIBABLE)
    stacks, programs = _trials(described, facts), _trials(described, facts, all_releases=True)
    others = [row for row in predicted if row not in described]
    zero_shot = [error for each in stacks for error in _zero_shot(each)]
    indescribable = [error for each in _trials(others, facts) for error in _zero_shot(each)]
    after_5 = [each for trials in stacks for each in _after_few(trials, draws=draws)]
    in_context = (_left_out(each, among=_cut_in_context(each.stack)) for each in stacks)
    return TimesOf2026(
        rows=len(predicted),
        describable=len(described),
        zero_shot_mape_describable=_mean([zero_shot]),
        zero_shot_mape_all=_mean([zero_shot + indescribable]),
        mape_after_5=_mean([after_5]),
        leave_one_model_out_mape=_mean(map(_left_out_models, programs)),
        in_stack_mape=_mean(map(_left_out, programs)),
        context_parallel_mape=_mean(in_context),
        coverage_80=mean([float(within) for _, within in after_5]),
        left_out=dict(Counter((left_out | not_described).values())),
    )


def predictable(rows: Sequence[PublishedRow], facts: Facts) -> tuple[list[PublishedRow], LeftOut]:
    return split_rows(
        rows,
        {
            "on a GPU whose data sheet is not known": unknown_gpu,
            "out of memory or not ended": lambda row: row["status"] != "ok",
            "no iteration time": lambda row: not row.known("iteration_time_s"),
            "no shape or layout": lambda row: not shaped(row, facts),
        },
    )


Judged = tuple[float, bool]
"""The error of a row, and whether its 80 % interval held what was measured."""


def _mean(judged: Iterable[Iterable[Judged]]) -> float | None:
    return mean([error for error, _ in chain.from_iterable(judged)])


def _trials(
    rows: Sequence[PublishedRow], facts: Facts, *, all_releases: bool = False
) -> list[Trials]:
    def of_program(row: PublishedRow) -> tuple[str, str, str]:
        return "", row["framework"], kind_of(row)

    key = {"key": of_program} if all_releases else {}
    return [Trials(stack) for stack in stacks_of(rows, facts, zero_stage=no_zero, **key)]


def _errors(trials: Trials, judged: Rows, learned_from: Rows) -> list[Judged]:
    """Errors of rows after calibration on others, weighted by their release as a campaign weights
    earlier trials."""
    releases = np.array([row["release"] for row in trials.stack.rows])
    errors: list[Judged] = []
    for release in dict.fromkeys(releases[judged].tolist()):
        among = {PROGRAM: release}
        weights = [
            weight_of({PROGRAM: other}, among=among, age_days=0.0)
            for other in releases[learned_from].tolist()
        ]
        log_time, width = trials.forecast(learned_from, np.array(weights))
        off = log_time - trials.log_time
        wrong, within = np.abs(np.expm1(off)), np.abs(off) <= width
        mine = judged[releases[judged] == release]
        errors += zip(wrong[mine].tolist(), within[mine].tolist(), strict=True)
    return errors


def _zero_shot(trials: Trials) -> list[Judged]:
    return _errors(trials, np.arange(len(trials.log_time)), np.array([], dtype=np.int64))


def _after_few(trials: Trials, *, draws: int) -> Iterator[Judged]:
    rows = len(trials.log_time)
    if rows < TRIALS + LEAST_LEFT:
        return
    for draw in range(draws):
        order = np.random.default_rng([SEED, draw]).permutation(rows)
        yield from _errors(trials, order[TRIALS:], order[:TRIALS])


def _left_out_models(trials: Trials) -> Iterator[Judged]:
    models = np.array([row["model"] for row in trials.stack.rows])
    for model in sorted(set(models)):
        others = np.flatnonzero(models != model)
        if len(others):
            yield from _errors(trials, np.flatnonzero(models == model), others)


def _left_out(trials: Trials, *, among: Array | None = None) -> Iterator[Judged]:
    """Yield errors of rows, or those `among` them, that are left out in turn: one at a time, or a
    tenth where there are more."""
    rows = len(trials.log_time)
    chosen = np.ones(rows, dtype=np.bool_) if among is None else among
    order = np.random.default_rng(SEED).permutation(rows)
    for part in range(min(rows, PARTS) if rows > 1 else 0):
        out = order[part::PARTS]
        if judged := [row for row in out.tolist() if chosen[row]]:
            yield from _errors(trials, np.array(judged), np.setdiff1d(order, out))


def _cut_in_context(stack: Stack) -> Array:
    return np.broadcast_to(stack.columns["context_parallel"] > 1, len(stack))
