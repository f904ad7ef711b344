"""What others would do: in any order, as a careful person would, or with a library's defaults."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from autotune.cost_model.columns import Array
from tests.benchmarks.replay.grid import Grid
from tests.benchmarks.replay.landscapes import Landscape
from tests.benchmarks.replay.stock import StockDeepHyper
from tests.benchmarks.replay.trials import Chooser, Revealed

MEMORY_COLUMNS = (
    ("tensor_parallel", -1.0),
    ("pipeline_parallel", -1.0),
    ("context_parallel", -1.0),
    ("micro_batch_size", 1.0),
    ("zero_stage", -1.0),
    ("full_checkpointing", -1.0),
    ("selective_checkpointing", -1.0),
    ("operation_checkpointing", -1.0),
    ("sequence_parallel", -1.0),
    ("flash_attention", -1.0),
    ("unfused_softmax", 1.0),
    ("fused_norm", -1.0),
    ("fp8", -1.0),
    ("fp32", 1.0),
)
"""Columns in which more surely needs more memory, or less (-1)."""


def at_random(landscape: Landscape, *, seed: int) -> Chooser:
    rows = iter(np.random.default_rng(seed).permutation(len(landscape)).tolist())
    return lambda _latest: next(rows, None)


def pruned_grid(landscape: Landscape) -> Chooser:
    """From the least model parallelism upward, without what needs as much memory as a strategy that
    ran out of it; no formula is asked."""
    order = _least_parallel_first(landscape)
    demands = _demands(landscape)
    failed: list[int] = []

    def remaining() -> Iterator[int]:
        for row in order:
            if not any(bool(np.all(demands[row] >= demands[bad])) for bad in failed):
                yield row

    rows = remaining()

    def choose(latest: Revealed | None) -> int | None:
        if latest is not None and latest.log_rate is None:
            failed.append(latest.row)
        return next(rows, None)

    return choose


def _demands(landscape: Landscape) -> Array:
    """What makes a strategy need more memory, shape (n, k): larger is more."""
    columns = landscape.columns
    parts = [sign * columns[name] for name, sign in MEMORY_COLUMNS]
    return np.stack([np.broadcast_to(part, len(landscape)) for part in parts], axis=-1)


def _least_parallel_first(landscape: Landscape) -> list[int]:
    """Of equal model parallelism: without recomputation and with the quickest kernels first."""
    columns = landscape.columns
    degree = columns["tensor_parallel"] * columns["pipeline_parallel"] * columns["context_parallel"]
    recomputed = (
        2.0 * columns["full_checkpointing"]
        + columns["selective_checkpointing"]
        + columns["operation_checkpointing"]
    )
    kernels = (
        columns["flash_attention"]
        - 0.5 * columns["flash_1"]
        - columns["unfused_softmax"]
        + 0.5 * columns["fused_norm"]
    )
    keys = (
        degree,
        columns["tensor_parallel"],
        recomputed,
        -kernels,
        columns["micro_batch_size"],
        -columns["zero_stage"],
    )
    whole = [np.broadcast_to(key, len(landscape)) for key in keys]
    return [int(row) for row in np.lexsort(whole[::-1])]


# --- libraries -----------------------------------------------------------------------------------


def optuna_tpe(landscape: Landscape, *, seed: int) -> Chooser:
    """Optuna's default sampler. A point that is no strategy, or was tried, stands for the nearest
    that is untried, and Optuna is told of that one; what ran out of memory is told as pruned, which
    its sampler counts as worse than all that ran."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    grid = Grid(landscape)
    highest = grid.levels.max(axis=0).tolist()
    space: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.IntDistribution(0, most)
        for name, most in zip(grid.names, highest, strict=True)
    }
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))

    def choose(latest: Revealed | None) -> int | None:
        if latest is not None:
            fits = latest.log_rate is not None
            state = optuna.trial.TrialState.COMPLETE if fits else optuna.trial.TrialState.PRUNED
            study.add_trial(
                optuna.trial.create_trial(
                    params=grid.point(latest.row),
                    distributions=space,
                    value=latest.log_rate,
                    state=state,
                )
            )
        asked = study.ask(space)
        study.tell(asked, state=optuna.trial.TrialState.FAIL)
        return grid.take({name: int(asked.params[name]) for name in grid.names})

    return choose


def stock_deephyper(landscape: Landscape, *, seed: int) -> Chooser:
    """Told rates, as its users tell them."""
    grid = Grid(landscape)
    search = StockDeepHyper(grid.names, grid.levels, seed=seed)

    def choose(latest: Revealed | None) -> int | None:
        if latest is not None:
            search.tell(latest.row, None if latest.log_rate is None else math.exp(latest.log_rate))
        return search.ask()

    return choose
