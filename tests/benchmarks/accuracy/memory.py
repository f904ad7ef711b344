"""How well what fits is separated from what does not, and how far predicted peaks are off."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import rankdata

from autotune.calibration.mixture import Mixture
from autotune.calibration.quantity import ALLOCATED, Quantity
from autotune.calibration.sample import Sample
from autotune.cost_model.columns import Array, Columns, Mask, Rows
from tests.benchmarks.accuracy.configurations import zero_of_peaks
from tests.benchmarks.accuracy.facts import Facts
from tests.benchmarks.accuracy.hardware import sheet_of, unknown_gpu
from tests.benchmarks.accuracy.stacks import (
    NOT_DESCRIBED,
    LeftOut,
    Stack,
    contradictions,
    named,
    noise_floor,
    offloaded,
    shaped,
    split_rows,
    stacks_of,
)
from tests.benchmarks.accuracy.tables import PublishedRow
from tests.benchmarks.accuracy.throughput import LEAST_HELD_OUT, SEED, mape

FAILED = "oom"
FITTED = ("ok", "fits")

LEAST_FAILURES = 10
"""Of a stack whose labels are judged."""
FOLDS = 5
SHUFFLES = 3
"""Times that the rows are put into folds anew: which fall together is chance."""
TRIALS = 5
"""Peaks that a calibration learns from before it predicts the others."""

Labels = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class PeakAccuracy:
    """Errors of one stack's measured peaks, as fractions.

    Attributes:
        noise_floor: error of the median of rows that agree in everything.
    """

    rows: int
    zero_shot: float
    after_5: float
    noise_floor: float | None


@dataclass(frozen=True, kw_only=True, eq=False)
class LabelAccuracy:
    """Fit probabilities of strategies that ran or ran out of memory, of all stacks together.

    Attributes:
        fitted, probability: shape (n,); each row as often as it was in a fold.
        auc: probability that a strategy that fitted has the higher one of two.
        auc_zero_shot: the same before anything is learned.
        threshold: the fit probability from which on a strategy is best taken to fit.
        contradictions: fewest labels that must be wrong, whatever predicts them.
    """

    rows: int
    failures: int
    fitted: Labels
    probability: Array
    auc: float
    auc_zero_shot: float
    threshold: float
    contradictions: int

    def condemned(self, threshold: float) -> float:
        """Share of the strategies that fitted, below the threshold."""
        return float(np.mean(self.probability[self.fitted] < threshold))

    def missed(self, threshold: float) -> float:
        """Share of the failures at the threshold or above it."""
        return float(np.mean(self.probability[~self.fitted] >= threshold))


def stacks(rows: Sequence[PublishedRow], facts: Facts) -> tuple[dict[str, Stack], LeftOut]:
    """All that was measured, and which rows were left out for which reason."""
    usable, left_out = split_rows(
        rows,
        {
            "on a GPU whose data sheet is not known": unknown_gpu,
            **NOT_DESCRIBED,
            "calculated, not measured": _calculated,
            "of another stage than the fullest": _other_stage,
            "neither fitted nor failed": lambda row: row["status"] not in (FAILED, *FITTED),
            "offload to the host, not covered": offloaded,
            "no shape, layout or activations": lambda row: not _complete(row, facts),
        },
    )
    return named(stacks_of(usable, facts, zero_stage=zero_of_peaks)), left_out


def _calculated(row: PublishedRow) -> bool:
    return row["status"] == "calc" or "calculated" in row["memory_kind"].casefold()


def _other_stage(row: PublishedRow) -> bool:
    """Peaks of each stage are told of pipelines whose first stage is the fullest."""
    _, names_one, stage = row["memory_kind"].partition("pipeline stage ")
    return bool(names_one) and not stage.startswith("0 ")


def _complete(row: PublishedRow, facts: Facts) -> bool:
    """Of activations nothing is known where neither micro-batch nor sequence is told."""
    activations = row.known("micro_batch_size") or row.known("seq_length")
    return shaped(row, facts) and activations


@dataclass(frozen=True, eq=False)
class Learned:
    """What some rows of a stack say of memory."""

    mixture: Mixture
    sample: Sample


class Memory:
    """Calibrations of memory on some rows of a stack."""

    def __init__(self, stack: Stack) -> None:
        self.quantity = Quantity(machine=stack.machine, prior=stack.prior, of_memory=True)
        self.columns = stack.columns
        limits = [row.number("gpu_memory_gb") or sheet_of(row).memory_gib for row in stack.rows]
        self.log_limit = np.log(np.array(limits))
        self.log_peak = np.log(stack.figures("peak_memory_gb"))
        self.failed = np.array([row["status"] == FAILED for row in stack.rows])
        self.with_peak: Mask = ~self.failed & np.isfinite(self.log_peak)
        self.allocated = np.array(
            ["allocated" in row.words.get("memory_kind", "") for row in stack.rows]
        )

    def learned(self, rows: Rows) -> Learned:
        """From peaks, and from labels against the memory of the row's own GPU where none is given.

        Makers call a GiB of memory a GB, and so do these tables.
        """
        measured = self.with_peak[rows]
        label = np.where(self.failed[rows], -1.0, 1.0)
        sample = Sample(
            columns=self.columns.take(rows) if len(rows) else Columns.none(),
            log_value=np.where(measured, self.log_peak[rows], self.log_limit[rows]),
            side=np.where(measured, 0.0, label),
            allocated=self.allocated[rows],
        )
        return Learned(mixture=Mixture.of(self.quantity, sample), sample=sample)

    def fit_probability(self, learned: Learned, rows: Rows) -> Array:
        """As `Calibration.fit_probability`, with a limit for each row."""
        log_gib, _, variance = learned.mixture.predict(self.columns.take(rows), labelled=True)
        deviation = np.sqrt(variance + learned.sample.edge**2)
        return np.asarray(ndtr((self.log_limit[rows] - log_gib) / deviation))

    def peak_error(self, learned: Learned, rows: Rows) -> float:
        return mape(self.log_peak[rows], self.peaks(learned, rows)[0])

    def peaks(self, learned: Learned, rows: Rows) -> tuple[Array, Array]:
        """Mean and variance of the logarithm of each row's kind of peak."""
        kind = np.where(self.allocated[rows], ALLOCATED, 0.0)
        mean, _, variance = learned.mixture.predict(self.columns.take(rows), labelled=kind)
        return mean, variance


def peaks(stack: Stack, *, draws: int) -> PeakAccuracy | None:
    """None where there are too few to learn from some and be tested on others."""
    memory = Memory(stack)
    measured = np.flatnonzero(memory.with_peak)
    if len(measured) < TRIALS + LEAST_HELD_OUT:
        return None
    errors: list[float] = []
    for draw in range(draws):
        order = np.random.default_rng([SEED, draw, TRIALS]).permutation(measured)
        errors.append(memory.peak_error(memory.learned(order[:TRIALS]), order[TRIALS:]))
    general = memory.learned(measured[:0])
    return PeakAccuracy(
        rows=len(measured),
        zero_shot=memory.peak_error(general, measured),
        after_5=float(np.mean(errors)),
        noise_floor=noise_floor(stack, "peak_memory_gb"),
    )


def labels(stacks: Iterable[Stack]) -> LabelAccuracy | None:
    """Each row by what the rows of the other folds of its stack taught; None without failures."""
    chosen: list[tuple[Stack, Memory]] = []
    learned: list[tuple[Labels, Array]] = []
    for stack in stacks:
        memory = Memory(stack)
        failures = int(memory.failed.sum())
        if failures >= LEAST_FAILURES and len(stack) - failures >= FOLDS:
            chosen.append((stack, memory))
            learned += _cross_validated(memory)
    if not chosen:
        return None
    fitted, probability = (np.concatenate(parts) for parts in zip(*learned, strict=True))
    general = [_general(memory) for _, memory in chosen]
    return LabelAccuracy(
        rows=sum(len(stack) for stack, _ in chosen),
        failures=sum(int(memory.failed.sum()) for _, memory in chosen),
        fitted=fitted,
        probability=probability,
        auc=area_under_curve(fitted, probability),
        auc_zero_shot=area_under_curve(
            *(np.concatenate(parts) for parts in zip(*general, strict=True))
        ),
        threshold=best_threshold(fitted, probability),
        contradictions=sum(contradictions(stack, memory.failed) for stack, memory in chosen),
    )


def _cross_validated(memory: Memory) -> Iterator[tuple[Labels, Array]]:
    for shuffle in range(SHUFFLES):
        fold = np.random.default_rng([SEED, shuffle]).permutation(len(memory.failed)) % FOLDS
        for number in range(FOLDS):
            rest, held_out = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
            yield (
                ~memory.failed[held_out],
                memory.fit_probability(memory.learned(rest), held_out),
            )


def _general(memory: Memory) -> tuple[Labels, Array]:
    every = np.arange(len(memory.failed))
    return ~memory.failed, memory.fit_probability(memory.learned(every[:0]), every)


def area_under_curve(fitted: Labels, probability: Array) -> float:
    """Of the receiver operating characteristic, by ranks (Mann and Whitney 1947); ties count half.

    Args:
        fitted: shape (n,), some of them, not all.
    """
    ranks = rankdata(probability)
    yes, no = int(fitted.sum()), int((~fitted).sum())
    return float((ranks[fitted].sum() - yes * (yes + 1) / 2) / (yes * no))


def best_threshold(fitted: Labels, probability: Array) -> float:
    """With which the larger of condemned and missed is least; half-way between two rows."""
    levels = np.unique(probability)
    thresholds = np.concatenate([levels[:1], (levels[1:] + levels[:-1]) / 2])
    condemned = np.mean(probability[fitted] < thresholds[:, np.newaxis], axis=1)
    missed = np.mean(probability[~fitted] >= thresholds[:, np.newaxis], axis=1)
    return float(thresholds[np.argmin(np.maximum(condemned, missed))])
