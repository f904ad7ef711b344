"""DeepHyper as it comes, over rows of points."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

OFFERED = 2000
"""Points that its acquisition function chooses among at most."""


class StockDeepHyper:
    """`CBO` with its defaults over the untried rows, but for the failures that would end it and for
    its acquisition optimiser, whose genetic algorithm takes seconds and leaves the rows.

    Args:
        names: of the d dimensions.
        points: shape (n, d), whole numbers; no two rows alike.
    """

    def __init__(self, names: Sequence[str], points: NDArray[np.int64], *, seed: int) -> None:
        from deephyper.hpo import CBO, HpProblem

        self._names = list(names)
        self._points = points
        self._row_of = {tuple(point): row for row, point in enumerate(points.tolist())}
        order = np.random.default_rng(seed).permutation(len(points))
        self._untried = dict.fromkeys(order.tolist())
        problem = HpProblem(seed=seed)
        for column, name in enumerate(self._names):
            problem.add_hyperparameter(np.unique(points[:, column]).tolist(), name)
        problem.set_sampling_fn(self._offered)
        self._search = CBO(
            problem,
            random_state=seed,
            log_dir=tempfile.gettempdir(),
            checkpoint_history_to_csv=False,
            acq_optimizer="sampling",
            acq_optimizer_kwargs={
                "max_total_failures": -1,
                "n_points": min(len(points), OFFERED),
            },
        )

    def tell(self, row: int, rate: float | None) -> None:
        """Rate None: the row failed. It samples for what comes next, so not told of the last."""
        if self._untried:
            self._search.tell([(self._point(row), "F_oom" if rate is None else rate)])

    def ask(self) -> int | None:
        """An untried row; None where there is none."""
        if not self._untried:
            return None
        asked = self._search.ask(1)[0]
        row = self._row_of[tuple(asked[name] for name in self._names)]
        del self._untried[row]
        return row

    def _offered(self, _size: int) -> list[dict[str, int]]:
        return [self._point(row) for row in list(self._untried)[:OFFERED]]

    def _point(self, row: int) -> dict[str, int]:
        return dict(zip(self._names, self._points[row].tolist(), strict=True))
