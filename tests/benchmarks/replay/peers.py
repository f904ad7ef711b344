"""What others would do: in any order, as a careful person would, or with a library's defaults."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from autotune.calibration.dominance import needs_as_much
from autotune.search.choice import PointResult, choose_stock
from autotune.search.uncalibrated import OUT_OF_MEMORY
from tests.benchmarks.replay.landscapes import Landscape
from tests.benchmarks.replay.trials import Chooser, Grid, Revealed

if TYPE_CHECKING:
    import optuna


def at_random(landscape: Landscape, *, seed: int) -> Chooser:
    rows = iter(np.random.default_rng(seed).permutation(len(landscape)).tolist())
    return lambda _latest: next(rows, None)


def pruned_grid(landscape: Landscape) -> Chooser:
    """From the least model parallelism upward, without what needs as much memory as a strategy that
    ran out of it; no formula is asked."""
    left = _least_parallel_first(landscape)

    def choose(latest: Revealed | None) -> int | None:
        if latest is not None and latest.log_rate is None:
            left[:] = _without_larger(landscape, left, latest.row)
        return left.pop(0) if left else None

    return choose


def _without_larger(landscape: Landscape, left: Sequence[int], failed: int) -> list[int]:
    columns = landscape.columns
    too_large = needs_as_much(
        columns.take(np.array(left, dtype=int)), columns.take(np.array([failed]))
    )
    return [row for row, large in zip(left, too_large[:, 0], strict=True) if not large]


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
    """Optuna's default sampler. What ran out of memory is a pruned trial, which the sampler counts
    as worse than all that ran."""
    import optuna

    def state(_rates: Sequence[float]) -> tuple[optuna.trial.TrialState, float | None]:
        return optuna.trial.TrialState.PRUNED, None

    return _optuna(landscape, optuna.samplers.TPESampler(seed=seed), failure=state)


def optuna_gp(landscape: Landscape, *, seed: int) -> Chooser:
    """Optuna's Gaussian process with its defaults. It knows complete trials only: what ran out of
    memory is one with the lowest rate so far, or a pruned one while nothing has run."""
    import optuna

    def state(rates: Sequence[float]) -> tuple[optuna.trial.TrialState, float | None]:
        if not rates:
            return optuna.trial.TrialState.PRUNED, None
        return optuna.trial.TrialState.COMPLETE, min(rates)

    return _optuna(landscape, optuna.samplers.GPSampler(seed=seed), failure=state)


def _optuna(
    landscape: Landscape,
    sampler: optuna.samplers.BaseSampler,
    *,
    failure: Callable[[Sequence[float]], tuple[optuna.trial.TrialState, float | None]],
) -> Chooser:
    """A point that is no strategy, or was tried, stands for the nearest that is untried, and Optuna
    is given the result of that one.

    Args:
        failure: state and value of a trial that ran out of memory, after these log rates.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    grid = Grid(landscape)
    highest = grid.levels.max(axis=0).tolist()
    space: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.IntDistribution(0, most)
        for name, most in zip(grid.names, highest, strict=True)
    }
    study = optuna.create_study(direction="maximize", sampler=sampler)
    rates: list[float] = []

    def choose(latest: Revealed | None) -> int | None:
        if latest is not None:
            state, value = failure(rates)
            if latest.log_rate is not None:
                state, value = optuna.trial.TrialState.COMPLETE, latest.log_rate
                rates.append(value)
            study.add_trial(
                optuna.trial.create_trial(
                    params=grid.point(latest.row), distributions=space, value=value, state=state
                )
            )
        suggested = study.ask(space)
        study.tell(suggested, state=optuna.trial.TrialState.FAIL)
        return grid.take({name: int(suggested.params[name]) for name in grid.names})

    return choose


def stock_deephyper(landscape: Landscape, *, seed: int) -> Chooser:
    """DeepHyper with its defaults: at random until as many trials have run as it wants initial
    points."""
    return _deephyper(landscape, seed=seed, pruned=False)


def pruned_deephyper(landscape: Landscape, *, seed: int) -> Chooser:
    """As the product's search `deephyper`: without what needs as much memory as a strategy that ran
    out of it, and with failures among the initial points."""
    return _deephyper(landscape, seed=seed, pruned=True)


def _deephyper(landscape: Landscape, *, seed: int, pruned: bool) -> Chooser:
    """DeepHyper, given rates, as its users give them."""
    grid = Grid(landscape)
    left = np.random.default_rng(seed).permutation(len(landscape)).tolist()
    initial = 2 * len(grid.names) + 1
    results: list[PointResult] = []

    def choose(latest: Revealed | None) -> int | None:
        if latest is not None:
            rate = OUT_OF_MEMORY if latest.log_rate is None else math.exp(latest.log_rate)
            results.append((grid.levels[latest.row].tolist(), rate))
            if pruned and latest.log_rate is None:
                left[:] = _without_larger(landscape, left, latest.row)
        if not left:
            return None
        ran = sum(rate != OUT_OF_MEMORY for _, rate in results)
        if (len(results) if pruned and ran else ran) < initial:
            return int(left.pop(0))
        chosen = choose_stock(
            grid.names,
            grid.levels[left],
            surrogate="forest",
            results=results,
            initial=initial,
            seed=seed,
        )
        return int(left.pop(chosen))

    return choose
