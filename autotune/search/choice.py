"""DeepHyper's choice of one layout: a `CBO` built afresh from all that was observed.

DeepHyper and scikit-learn take seconds to import, so they are imported where they are used.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

from autotune.search.gaussian_process import PRIOR_SPREAD, kernel
from autotune.search.layouts import LAYOUT_DIMENSIONS, Floats, Integers, Layouts
from autotune.search.trial import SearchTrial

if TYPE_CHECKING:
    from deephyper.hpo import CBO, HpProblem

    from autotune.search.surrogate import LayoutRegressor

INITIAL_TRIALS = 2
"""Successes before the surrogate chooses: the cost model's best, then one unlike it."""

NOVELTY = 2.0
"""How many prior spreads of predicted log rate an initial trial may give up to be unlike others."""

KAPPA = 1.0
"""Deviations added by the upper confidence bound."""

TREES_BEYOND = 400
"""Observations beyond which extremely randomised trees replace the Gaussian process."""

OFFERED = 2000
"""Candidates offered to the acquisition function at most."""

Point = dict[str, int]


@dataclass(frozen=True, kw_only=True, eq=False)
class TriedLayouts:
    """What is known of some layouts: `trials[i]` is about row `rows[i]`, each row once."""

    trials: Sequence[SearchTrial]
    rows: Integers

    def where(self, *, state: str, out_of_memory: bool = False) -> Integers:
        """Return the rows in this state."""
        same = [o.state == state and o.out_of_memory == out_of_memory for o in self.trials]
        return self.rows[np.array(same, dtype=np.bool_)]

    @property
    def log_rates(self) -> list[float]:
        """Of the ok ones."""
        return [o.log_rate for o in self.trials if o.state == "ok"]


def choose(
    layouts: Layouts, known: TriedLayouts, candidates: Integers, *, risk: Floats, seed: int
) -> int:
    """Return the row that DeepHyper asks for among `candidates`, given what is `known`.

    `risk`, shape (n,), lowers a layout's log rate for its chance not to fit.

    Depends on its arguments alone: nothing is kept from an earlier call, and no global random
    state is read or written.
    """
    offered = [_point(layouts, row) for row in _offered(candidates)]
    exploring = len(known.log_rates) >= INITIAL_TRIALS
    results = _results(layouts, known, with_running=exploring)
    search = _search(
        _problem(layouts, offered, seed),
        surrogate=_surrogate(layouts, known, risk),
        initial_points=[_point(layouts, _initial(layouts, known, candidates, risk))],
        n_initial_points=1 if exploring else len(results) + 1,
        n_points=len(offered),
        seed=seed,
    )
    # The matrices are small: BLAS threads win nothing, and on a busy machine cost a hundredfold.
    with threadpool_limits(limits=1, user_api="blas"):
        if results:
            search.tell(results)
        point = search.ask(1)[0]
    numbers = np.array([[point[name] for name in LAYOUT_DIMENSIONS]], dtype=np.int64)
    return int(layouts.rows_of_numbers(numbers)[0])


def _search(
    problem: HpProblem,
    *,
    surrogate: LayoutRegressor | str,
    initial_points: list[Point],
    n_initial_points: int,
    n_points: int,
    seed: int,
) -> CBO:
    from deephyper.hpo import CBO

    return CBO(
        problem,
        random_state=seed,
        log_dir=tempfile.gettempdir(),
        checkpoint_history_to_csv=False,
        surrogate_model=surrogate,
        acq_func="UCB",
        acq_func_kwargs={"kappa": KAPPA, "scheduler": {"type": "constant"}},
        acq_optimizer="sampling",
        acq_optimizer_kwargs={
            "n_points": n_points,
            "filter_failures": "min",
            "max_total_failures": -1,
            "outliers_iqr_factor": math.inf,
        },
        n_initial_points=n_initial_points,
        initial_points=initial_points,
        objective_scaler="identity",
    )


def _surrogate(layouts: Layouts, known: TriedLayouts, risk: Floats) -> LayoutRegressor | str:
    from autotune.search.surrogate import LayoutRegressor

    if len(known.rows) > TREES_BEYOND:
        return "ET"
    return LayoutRegressor(
        layouts=layouts,
        risk=risk,
        out_of_memory=known.where(state="failed", out_of_memory=True),
        running=known.where(state="running"),
    )


def _problem(layouts: Layouts, offered: list[Point], seed: int) -> HpProblem:
    """Return a problem over the dimensions as ordered numbers; it samples the points `offered`.

    Seeded, because an unseeded problem copies NumPy's global state.
    """
    from deephyper.hpo import HpProblem

    problem = HpProblem(seed=seed)
    for column, name in enumerate(LAYOUT_DIMENSIONS):
        problem.add_hyperparameter(np.unique(layouts.numbers[:, column]).tolist(), name)
    problem.set_sampling_fn(lambda _size: offered)
    return problem


def _point(layouts: Layouts, row: int) -> Point:
    return dict(zip(LAYOUT_DIMENSIONS, layouts.numbers[row].tolist(), strict=True))


def _offered(candidates: Integers) -> Integers:
    """Return all, or the most promising half of OFFERED and as many evenly spread over the
    others."""
    if len(candidates) <= OFFERED:
        return candidates
    half = OFFERED // 2
    spread = np.linspace(half, len(candidates) - 1, half).astype(np.int64)
    return np.asarray(candidates[np.concatenate([np.arange(half), spread])], dtype=np.int64)


def _initial(layouts: Layouts, known: TriedLayouts, candidates: Integers, risk: Floats) -> int:
    """Return the candidate with the best predicted rate for its distance from every known
    layout."""
    promise = (layouts.log_rate - risk)[candidates]
    if len(known.rows):
        near = cdist(layouts.features[candidates], layouts.features[known.rows])
        promise = promise - NOVELTY * PRIOR_SPREAD * kernel(near, 2.0).max(axis=1)
    return int(candidates[np.argmax(promise)])


def _results(
    layouts: Layouts, known: TriedLayouts, *, with_running: bool
) -> list[tuple[Point, float | str]]:
    """Return each known layout with the logarithm of its rate, a failure, or for a running one a
    lie.

    The lie is the mean of the finished ones. DeepHyper wants floats: an integer counts as failed.
    """
    lie = float(np.mean(known.log_rates)) if known.log_rates else 0.0
    results: list[tuple[Point, float | str]] = []
    for row, trial in zip(known.rows.tolist(), known.trials, strict=True):
        if trial.state == "ok":
            results.append((_point(layouts, row), float(trial.log_rate)))
        elif trial.state == "failed":
            failure = "F_oom" if trial.out_of_memory else "F_failed"
            results.append((_point(layouts, row), failure))
        elif trial.state == "running" and with_running:
            results.append((_point(layouts, row), lie))
    return results
