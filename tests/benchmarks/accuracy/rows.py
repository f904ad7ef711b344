"""Every row of the tables with what is predicted of it before any trial: `--rows OUT.csv`."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from autotune.calibration.calibration import Z
from autotune.calibration.mixture import Mixture
from autotune.calibration.quantity import ALLOCATED
from autotune.calibration.sample import Sample
from autotune.cost_model.columns import Columns
from tests.benchmarks.accuracy import memory, memory_2026, models_2026, throughput
from tests.benchmarks.accuracy.configurations import no_zero
from tests.benchmarks.accuracy.facts import Facts
from tests.benchmarks.accuracy.stacks import LeftOut, Stack, split_rows, stacks_of
from tests.benchmarks.accuracy.tables import MEMORY, THROUGHPUT, PublishedRow, is_of_2026, read

TIME, PEAK = "iteration_time_s", "peak_memory_gib"
KINDS = ("allocated", "reserved")
COLUMNS = (
    *("place", "cluster", "framework", "gpu", "model", "status", "quantity", "memory_kind"),
    "measured",
    *("predicted", "low", "high", *KINDS, "fit_probability", "left_out"),
)
"""Predictions and 80 % intervals are those before any trial, peaks in GiB. `allocated` and
`reserved` are predicted, too."""

Cells = dict[str, object]


@dataclass(frozen=True, kw_only=True)
class Tables:
    """Rows of all tables; those of models of 2025 and 2026 are judged apart."""

    timed: Sequence[PublishedRow]
    remembered: Sequence[PublishedRow]
    timed_2026: Sequence[PublishedRow]
    golden: Sequence[PublishedRow]
    reference: Sequence[PublishedRow]
    has_2026: bool

    @classmethod
    def read(
        cls, throughput: Sequence[Path], memory: Sequence[Path], reference: Sequence[Path]
    ) -> Self:
        newer, golden = (list(filter(is_of_2026, paths)) for paths in (throughput, memory))
        return cls(
            timed=_rows([path for path in throughput if path not in newer], THROUGHPUT),
            remembered=_rows([path for path in memory if path not in golden], MEMORY),
            timed_2026=_rows(newer, THROUGHPUT),
            golden=memory_2026.golden(golden),
            reference=memory_2026.golden(reference),
            has_2026=bool(newer or golden),
        )


def _rows(paths: Sequence[Path], columns: Sequence[str]) -> list[PublishedRow]:
    return [row for path in paths for row in read(path, columns)]


def write(out: Path, tables: Tables) -> None:
    with out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(_judged(tables))


def _judged(tables: Tables) -> Iterator[Cells]:
    facts = Facts.of([*tables.timed, *tables.remembered])
    stacks, left_out = throughput.stacks(tables.timed, facts)
    yield from _of_stacks(list(stacks.values()), {}, TIME)
    yield from _not_predicted(left_out, TIME)
    stacks, left_out = memory.stacks(tables.remembered, facts)
    yield from _of_stacks(list(stacks.values()), {}, PEAK)
    yield from _not_predicted(left_out, PEAK)
    facts = Facts.of(tables.timed_2026)
    predicted, left_out = models_2026.predictable(tables.timed_2026, facts)
    reasons = split_rows(predicted, models_2026.NOT_DESCRIBABLE)[1]
    yield from _of_stacks(stacks_of(predicted, facts, zero_stage=no_zero), reasons, TIME)
    yield from _not_predicted(left_out, TIME)
    golden = memory_2026.GoldenPeaks.of(tables.golden)
    yield from _golden(golden)
    yield from _not_predicted(golden.left_out, PEAK)


def _of_stacks(stacks: Sequence[Stack], reasons: LeftOut, quantity: str) -> Iterator[Cells]:
    """`reasons` to judge rows apart that are predicted."""
    nothing = np.array([], dtype=np.int64)
    for stack in stacks:
        every, peaks = np.arange(len(stack)), memory.Memory(stack)
        general = peaks.learned(nothing)
        if quantity == TIME:
            log_value, half = throughput.Trials(stack).forecast(nothing)
        else:
            log_value, variance = peaks.peaks(general, every)
            half = Z * np.sqrt(variance)
        fits = peaks.fit_probability(general, every)
        kinds = [
            np.exp(general.mixture.predict(stack.columns, labelled=kind)[0])
            for kind in (ALLOCATED, 0.0)
        ]
        for row, center, width, fit, *sizes in zip(
            stack.rows, log_value, half, fits, *kinds, strict=True
        ):
            known = row.number("iteration_time_s" if quantity == TIME else "peak_memory_gb")
            yield (
                _cells(row, quantity, known, reasons.get(row, ""))
                | _predicted(center, width, fit)
                | {name: f"{size:.6g}" for name, size in zip(KINDS, sizes, strict=True)}
            )


def _golden(peaks: memory_2026.GoldenPeaks) -> Iterator[Cells]:
    """Peaks of torch's allocator, on GPUs whose memory the table does not tell."""
    if not peaks.rows:
        return
    nothing = Sample(columns=Columns.none(), log_value=np.empty(0), side=np.empty(0))
    log_gib, _, variance = Mixture.of(memory_2026.quantity(), nothing).predict(peaks.columns)
    for row, gib, center, half in zip(
        peaks.rows, peaks.gib, log_gib, Z * np.sqrt(variance), strict=True
    ):
        found = _cells(row, PEAK, float(gib), "") | _predicted(center, half, None)
        yield found | {"memory_kind": "allocated", "allocated": found["predicted"]}


def _not_predicted(left_out: LeftOut, quantity: str) -> Iterator[Cells]:
    for row, reason in left_out.items():
        known = row.number("iteration_time_s" if quantity == TIME else "peak_memory_gb")
        yield _cells(row, quantity, known, reason)


def _cells(row: PublishedRow, quantity: str, measured: float | None, reason: str) -> Cells:
    value = "" if measured is None else f"{measured:.6g}"
    named = ("cluster", "framework", "gpu", "model", "status", "memory_kind")
    return {
        "place": row.place,
        **{name: row.words.get(name, "") for name in named},
        "quantity": quantity,
        "measured": value,
        "left_out": reason,
    }


def _predicted(log_value: float, half: float, fit: float | None) -> Cells:
    low, middle, high = np.exp([log_value - half, log_value, log_value + half])
    found: Cells = {"predicted": f"{middle:.6g}", "low": f"{low:.6g}", "high": f"{high:.6g}"}
    return found if fit is None else found | {"fit_probability": f"{fit:.4f}"}
