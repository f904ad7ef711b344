"""DeepHyper's choice of one layout: a `CBO` built afresh from all that was observed.

DeepHyper and scikit-learn take seconds to import, so they are imported where they are used.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_limits

from autotune.search.layouts import Floats, Integers
from autotune.search.lean_deephyper import import_deephyper

if TYPE_CHECKING:
    from deephyper.hpo import CBO, HpProblem

Point = dict[str, int]


def choose(
    names: Sequence[str],
    points: Integers,
    worth: Floats,
    *,
    told: Sequence[tuple[Sequence[int], float | str]],
    seed: int,
) -> int:
    """Return the number of the candidate that DeepHyper asks for.

    Depends on its arguments alone: nothing is kept from an earlier call, and no global random
    state is read or written.

    Args:
        names: of the d dimensions, alphabetical, as DeepHyper returns them.
        points: shape (n, d), the candidates, none of them twice.
        worth: shape (n,), of a trial of each.
        told: points with the logarithm of their rate, or "F_…" for a failure.
    """
    import_deephyper()
    results = [(_point(names, numbers), result) for numbers, result in told]
    every = np.array([*points.tolist(), *(numbers for numbers, _ in told)], dtype=np.int64)
    search = _search(
        _problem(names, every, points, seed),
        points,
        worth,
        has_run=any(isinstance(result, float) for _, result in told),
        first=_point(names, points[int(np.argmax(worth))].tolist()),
        n_told=len(results),
        seed=seed,
    )
    # The matrices are small: BLAS threads win nothing, and on a busy machine cost a hundredfold.
    with threadpool_limits(limits=1, user_api="blas"):
        if results:
            search.tell(results)
        point = search.ask(1)[0]
    asked = np.array([point[name] for name in names], dtype=np.int64)
    return int(np.flatnonzero((points == asked).all(axis=1))[0])


def _search(
    problem: HpProblem,
    points: Integers,
    worth: Floats,
    *,
    has_run: bool,
    first: Point,
    n_told: int,
    seed: int,
) -> CBO:
    """Return the search; before anything has run DeepHyper asks for `first`, since it asks no
    surrogate without a success."""
    from deephyper.hpo import CBO

    from autotune.search.surrogate import WorthRegressor

    return CBO(
        problem,
        random_state=seed,
        log_dir=tempfile.gettempdir(),
        checkpoint_history_to_csv=False,
        surrogate_model=WorthRegressor(
            {point.tobytes(): float(value) for point, value in zip(points, worth, strict=True)}
        ),
        acq_func="UCB",
        acq_func_kwargs={"kappa": 0.0, "scheduler": {"type": "constant"}},
        acq_optimizer="sampling",
        acq_optimizer_kwargs={
            "n_points": len(points),
            "filter_failures": "min",
            "max_total_failures": -1,
            "outliers_iqr_factor": math.inf,
        },
        n_initial_points=1 if has_run else n_told + 1,
        initial_points=[first],
        objective_scaler="identity",
    )


def _problem(names: Sequence[str], every: Integers, offered: Integers, seed: int) -> HpProblem:
    """Return a problem over the dimensions as ordered numbers; it samples the points `offered`.

    Seeded, because an unseeded problem copies NumPy's global state.
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
