"""Few replicas for many: the time of a wide run predicted from a narrow one that differs in
replicas only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from autotune.calibration.calibration import Z
from autotune.calibration.mixture import Mixture
from autotune.calibration.projection import projected
from autotune.calibration.quantity import Quantity
from autotune.calibration.sample import Sample
from autotune.cost_model.columns import Array
from tests.benchmarks.accuracy.stacks import Stack

REPLICAS = ("data_parallel", "world_size", "zero_shard_gpus")
"""Columns in which two runs of a pair differ."""


BANDS = {"2-4": (2.0, 4.0), "4-16": (4.001, 15.999), "16+": (16.0, np.inf)}
"""By how many times the replicas the wide run has: between two and four times, sixteen and more,
and the rest."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Attributes:
    ratio: replicas of the wide run for each of the narrow one.
    log_error: of the wide run's predicted time.
    covered: whether its 80 % interval held what was measured.
    """

    ratio: float
    log_error: float
    covered: bool


def pairs(stack: Stack) -> list[Pair]:
    """All of a stack's, each after calibration on its narrow run alone."""
    quantity = Quantity(machine=stack.machine, prior=stack.prior, of_memory=False)
    log_time = np.log(stack.figures("iteration_time_s"))
    results: list[Pair] = []
    for widths in _differing_in_replicas(stack):
        medians = {replicas: float(np.median(log_time[rows])) for replicas, rows in widths.items()}
        for narrow, wide in combinations(sorted(widths), 2):
            sample = Sample(
                columns=stack.columns.take(np.array(widths[narrow][:1])),
                log_value=np.array([medians[narrow]]),
                side=np.zeros(1),
            )
            mean, variance = projected(
                Mixture.of(quantity, sample),
                narrow=sample.columns,
                wide=stack.columns.take(np.array(widths[wide][:1])),
                log_time=sample.log_value,
            )
            error = float(mean[0]) - medians[wide]
            covered = abs(error) <= Z * float(np.sqrt(variance[0]))
            results.append(Pair(ratio=wide / narrow, log_error=error, covered=covered))
    return results


def _differing_in_replicas(stack: Stack) -> list[dict[float, list[int]]]:
    """Rows by their replicas, for each strategy that was timed with several numbers of them.

    Whether ZeRO divides over all replicas or over some is part of the strategy.
    """
    columns = stack.columns
    same = [
        np.broadcast_to(values, len(stack))
        for name, values in columns.values.items()
        if name not in REPLICAS
    ]
    shards = np.broadcast_to(columns["zero_shard_gpus"], len(stack))
    over_all = shards == columns["data_parallel"] * columns["context_parallel"]
    keys = np.stack([*same, np.where(over_all, 0.0, shards)], axis=-1)
    texts = [(row["model"], row["attention_kernel"]) for row in stack.rows]
    replicas = np.broadcast_to(columns["data_parallel"], len(stack))
    groups: dict[tuple[object, ...], dict[float, list[int]]] = defaultdict(dict)
    for number, row in enumerate(stack.rows):
        if row["status"] == "ok":
            widths = groups[*texts[number], *keys[number].tolist()]
            widths.setdefault(float(replicas[number]), []).append(number)
    return [widths for widths in groups.values() if len(widths) > 1]


def figures(found: Sequence[Pair]) -> dict[str, dict[str, float | int | None]]:
    """By band: median and 90th percentile of the error, coverage of the intervals, pairs."""
    results: dict[str, dict[str, float | int | None]] = {}
    for band, (least, most) in BANDS.items():
        mine = [pair for pair in found if least <= pair.ratio <= most]
        errors: Array = np.abs(np.expm1([pair.log_error for pair in mine]))
        results[band] = {
            "median": float(np.median(errors)) if mine else None,
            "p90": float(np.percentile(errors, 90)) if mine else None,
            "coverage": float(np.mean([pair.covered for pair in mine])) if mine else None,
            "pairs": len(mine),
        }
    return results
