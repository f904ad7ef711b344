"""DeepHyper's choice of one layout, by a `CBO` built anew from all observations.

DeepHyper and scikit-learn take seconds to import, so they are imported where they are used.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from autotune.schemas.choices import Surrogate
from autotune.search.layouts import Integers

if TYPE_CHECKING:
    from deephyper.hpo import HpProblem
    from sklearn.base import BaseEstimator

Point = dict[str, int]
PointResult = tuple[Sequence[int], float | str]


def choose(
    names: Sequence[str],
    points: Integers,
    surrogate: BaseEstimator,
    *,
    results: Sequence[PointResult],
    seed: int,
) -> int:
    """Return the index of the candidate with DeepHyper's highest expected improvement.

    The result depends only on the arguments: no state is kept between calls, and no global random
    state is read or written.

    Args:
        names: of the d dimensions, alphabetical, as DeepHyper returns them.
        points: shape (n, d), the distinct candidates. The first is chosen when all improvements are
            too small for a float.
        surrogate: of the negative log rate.
        results: points with the logarithm of their rate, at least one, or "F_…" for a failure.
    """
    settings = {
        "surrogate_model": surrogate,
        "acq_func": "EI",
        "acq_func_kwargs": {"xi": 0.0, "scheduler": {"type": "constant"}},
        "acq_optimizer_kwargs": {"filter_failures": "min", "outliers_iqr_factor": math.inf},
        "n_initial_points": 1,
        "initial_points": [_point(names, points[0].tolist())],
        "objective_scaler": "identity",
    }
    return _ask(names, points, settings, results=results, seed=seed)


def choose_stock(
    names: Sequence[str],
    points: Integers,
    *,
    surrogate: Surrogate,
    results: Sequence[PointResult],
    initial: int,
    seed: int,
) -> int:
    """Return the index of the candidate that DeepHyper chooses with its own surrogate.

    Everything is DeepHyper's default but for four settings. The acquisition is maximised over the
    legal candidates, not by a genetic algorithm, which leaves them. The limit of 100 failures is
    lifted. A Gaussian process uses UCB, because it does not support UCBd. Failures count among the
    initial points: DeepHyper waits for as many successes, and chooses at random until then.

    The search is built anew from all results at each call. DeepHyper lowers its weight of
    exploration with each point that it draws, so the new search draws as many as the results need.

    Args:
        points: shape (n, d), the distinct candidates.
        results: points with their rate, at least one of them, or "F_…" for a failure.
        initial: how many of them are initial points.

    The other arguments are those of `choose`.
    """
    model: dict[str, Any] = {"surrogate_model": "ET"}
    if surrogate == "gaussian_process":
        model = {"surrogate_model": "GP", "acq_func": "UCB"}
    successes = sum(not isinstance(result, str) for _, result in results)
    settings = model | {
        "n_initial_points": min(initial, successes),
        "initial_points": [_point(names, numbers) for numbers, _ in results],
    }
    drawn = len(results) - max(initial - successes, 0)
    return _ask(names, points, settings, results=results, drawn=drawn, seed=seed)


def _ask(
    names: Sequence[str],
    points: Integers,
    settings: Mapping[str, Any],
    *,
    results: Sequence[PointResult],
    drawn: int = 0,
    seed: int,
) -> int:
    from deephyper.hpo import CBO

    every = np.array([*points.tolist(), *(numbers for numbers, _ in results)], dtype=np.int64)
    optimizer = {"max_total_failures": -1, "n_points": len(points)}
    search = CBO(
        _problem(names, every, points, seed),
        random_state=seed,
        log_dir=tempfile.gettempdir(),
        checkpoint_history_to_csv=False,
        acq_optimizer="sampling",
        **{
            **settings,
            "acq_optimizer_kwargs": settings.get("acq_optimizer_kwargs", {}) | optimizer,
        },
    )
    # The matrices are small: BLAS threads win nothing, and on a busy machine cost a hundredfold.
    with threadpool_limits(limits=1, user_api="blas"):
        if drawn:
            search.ask(drawn)
        search.tell([(_point(names, numbers), result) for numbers, result in results])
        point = search.ask(1)[0]
    chosen = np.array([point[name] for name in names], dtype=np.int64)
    return int(np.flatnonzero((points == chosen).all(axis=1))[0])


def _problem(names: Sequence[str], every: Integers, offered: Integers, seed: int) -> HpProblem:
    """Return a problem over the dimensions as ordered numbers, which samples the points `offered`.

    It is seeded, because an unseeded problem copies NumPy's global state.
    """
    from deephyper.hpo import HpProblem

    problem = HpProblem(seed=seed)
    for column, name in enumerate(names):
        problem.add_hyperparameter(np.unique(every[:, column]).tolist(), name)
    candidates = [_point(names, point) for point in offered.tolist()]
    problem.set_sampling_fn(lambda _size: candidates)
    return problem


def _point(names: Sequence[str], numbers: Sequence[int]) -> Point:
    return dict(zip(names, numbers, strict=True))
