"""Grids of models of 2025 and 2026: a few layouts of one model on some GPUs, and which of them the
cost model takes first, before any trial."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autotune.calibration.calibration import general_knowledge
from autotune.calibration.quantity import iteration_time_s
from autotune.cost_model.parameters import Parameters
from autotune.cost_model.strategies import Strategies
from search_spaces.program import StateWidths
from tests.benchmarks.accuracy.configurations import columns_of, samples, usual_zero
from tests.benchmarks.accuracy.facts import Facts
from tests.benchmarks.accuracy.hardware import machine_of, unknown_gpu
from tests.benchmarks.accuracy.stacks import shaped
from tests.benchmarks.accuracy.tables import CHOICES, SIZES, TEXT, WORDS, PublishedRow, read

RATES = ("mfu", "tflops_per_gpu", "tokens_per_s_per_gpu")
"""Columns of a measured rate: that which most layouts of a grid have counts."""

COLUMNS = (
    *("grid_id", "recompute", "notes", *WORDS, *CHOICES, *SIZES),
    *("zero_stage", "gated_mlp", *RATES),
)
NAMES = {*TEXT, "grid_id", "recompute", "notes"}
MODULE_WORDS = {"none", "full"}

NOT_PRINTED = "VPP not given"
"""In a note, where a table does not print virtual stages."""

LEAST_LAYOUTS = 2
"""Of a grid: with one there is no choice."""

NEAR = 0.05
"""Of the best rate, what a choice may lose and still be a good one."""

LEAST_PROBABILITY = 1e-9

STATES = StateWidths(gradient_bytes=4.0)
"""Of Megatron-Core, with which nearly all grids were measured."""


@dataclass(frozen=True, kw_only=True)
class GridChoices:
    """What is lost by the layout that is predicted to be the fastest of those that fit.

    Attributes:
        grids: with at least two layouts that a description tells apart.
        mean_regret_first: share of the best rate that the choice lacks, mean over grids; 1 where it
            ran out of memory.
        within_5_percent: grids whose choice lacks at most that.
    """

    grids: int
    mean_regret_first: float | None
    within_5_percent: int


def read_grids(paths: Sequence[Path]) -> list[PublishedRow]:
    return [_launched(row) for path in paths for row in read(path, COLUMNS, text=NAMES)]


def _launched(row: PublishedRow) -> PublishedRow:
    """Return a row as Megatron-Core trains it: with fused attention, sequence parallelism under
    tensor parallelism, recomputation by module, and a layer to each virtual stage where
    their number is not printed."""
    recompute = row["recompute"]
    whole = recompute in MODULE_WORDS
    words = {
        **row.words,
        "activation_checkpointing": recompute if whole or not recompute else "selective",
        "recompute_modules": "" if whole else recompute,
    }
    figures = {**row.figures, "flash_attention": 1.0}
    figures["sequence_parallel"] = float(figures.get("tensor_parallel", 1.0) > 1)
    stages = figures.get("pipeline_parallel", 1.0)
    layers = figures.get("num_layers", 0.0) / stages
    if NOT_PRINTED in row["notes"] and stages > 1 and layers and layers % 1 == 0:
        figures["virtual_stages"] = layers
    return replace(row, words=words, figures=figures)


def choices(rows: Sequence[PublishedRow]) -> GridChoices:
    """Return what first choices come to on all grids."""
    grids: dict[str, list[PublishedRow]] = defaultdict(list)
    for row in rows:
        grids[row["grid_id"]].append(row)
    found = [regret for grid in grids.values() if (regret := first_regret(grid)) is not None]
    return GridChoices(
        grids=len(found),
        mean_regret_first=float(np.mean(found)) if found else None,
        within_5_percent=sum(regret <= NEAR for regret in found),
    )


def first_regret(grid: Sequence[PublishedRow]) -> float | None:
    """Return what the layout that is predicted to be the fastest lacks; None where there is no
    choice, or no machine, to predict.

    Rows that a description does not tell apart (by their dispatcher, say) are one layout, with the
    best rate of theirs.
    """
    facts = Facts.of(grid)
    known = [row for row in grid if not unknown_gpu(row) and shaped(row, facts)]
    name = max(RATES, key=lambda name: sum(row.known(name) for row in known))
    known = [row for row in known if row["status"] != "ok" or row.known(name)]
    rates: dict[tuple[object, ...], float] = {}
    first: dict[tuple[object, ...], PublishedRow] = {}
    for row in known:
        layout = row.without(*RATES, "status", "notes", "dispatcher")
        rate = row.figures[name] if row["status"] == "ok" else 0.0
        rates[layout] = max(rates.get(layout, 0.0), rate)
        first.setdefault(layout, row)
    if len(rates) < LEAST_LAYOUTS or not any(rates.values()):
        return None
    chosen = predicted_first(list(first.values()), facts)
    measured = np.array(list(rates.values()))
    return float(1.0 - measured[chosen] / measured.max())


def predicted_first(rows: Sequence[PublishedRow], facts: Facts) -> int:
    """Return the layout from which most samples a second are expected: its rate times the
    probability that it fits."""
    machine = machine_of(rows[0])
    constants = Parameters.default(machine, "vendor", STATES)
    strategies = Strategies(columns_of(rows, facts, zero_stage=usual_zero), machine, constants)
    count = len(rows)
    log_rate = np.log([samples(row) for row in rows]) - np.log(
        np.broadcast_to(iteration_time_s(strategies), count)
    )
    known = general_knowledge(machine, "vendor", STATES)
    fits = np.broadcast_to(known.fit_probability(strategies.columns), count)
    return int(np.argmax(log_rate + np.log(np.maximum(fits, LEAST_PROBABILITY))))
