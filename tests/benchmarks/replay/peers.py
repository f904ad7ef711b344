"""What others would do: in any order, as a careful person would, or with a library's defaults."""

from __future__ import annotations

import math

import numpy as np

from autotune.calibration.dominance import needs_as_much
from autotune.search.choice import Told, choose_stock
from autotune.search.uncalibrated import OUT_OF_MEMORY
from tests.benchmarks.replay.landscapes import Landscape
from tests.benchmarks.replay.trials import Chooser, Grid, Revealed


def at_random(landscape: Landscape, *, seed: int) -> Chooser:
    rows = iter(np.random.default_rng(seed).permutation(len(landscape)).tolist())
    return lambda _latest: next(rows, None)


def pruned_grid(landscape: Landscape) -> Chooser:
    """From the least model parallelism upward, without what needs as much memory as a strategy that
    ran out of it; no formula is asked."""
    left = _least_parallel_first(landscape)

    def choose(latest: Revealed | None) -> int | None:
        if latest is not None and latest.log_rate is None:
            columns, failed = landscape.columns, np.array([latest.row])
            too_large = needs_as_much(columns.take(np.array(left, dtype=int)), columns.take(failed))
            left[:] = [row for row, large in zip(left, too_large[:, 0], strict=True) if not large]
        return left.pop(0) if left else None

    return choose


def _least_parallel_first(landscape: Landscape) -> list[int]:
    """Of equal model parallelism: without recomputation and with the quickest kernels first."""
    columns = landscape.columns
    degree = columns["tensor_parallel"] * columns["pipeline_parallel"] * columns["context_parallel"]
    recomputed = 2.0 * columns["full_checkpointing"] + columns["selective_checkpointing"]
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
    """The product's search `deephyper`, told rates, as its users tell them."""
    grid = Grid(landscape)
    left = np.random.default_rng(seed).permutation(len(landscape)).tolist()
    told: list[Told] = []

    def choose(latest: Revealed | None) -> int | None:
        if latest is not None:
            rate = OUT_OF_MEMORY if latest.log_rate is None else math.exp(latest.log_rate)
            told.append((grid.levels[latest.row].tolist(), rate))
        if not left:
            return None
        points = grid.levels[left]
        asked = choose_stock(grid.names, points, surrogate="forest", told=told, seed=seed)
        row: int = left.pop(asked)
        return row

    return choose
