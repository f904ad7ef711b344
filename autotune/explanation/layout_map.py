"""Map of a space: the best rate for each pair of values of two dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.calibration import Calibration
from autotune.calibration.calibration import Z
from autotune.cost_model.columns import Array, Columns, Mask, Rows
from autotune.explanation.rates import blocks
from autotune.schemas.choices import Objective
from autotune.schemas.figures import MapPlace, PlaceState
from autotune.schemas.predictions import LIKELY_TO_FIT
from autotune.search import SearchTrial
from autotune.search.layouts import log_work
from search_spaces.dimensions import Scalar, in_order
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace


def layout_map(
    space: SearchSpace,
    calibration: Calibration,
    trials: Sequence[SearchTrial],
    *,
    objective: Objective = "tokens_per_s",
    headroom_gib: float = 0.0,
    micro_batch_size: int | None = None,
    num_nodes: int | None = None,
    x: str = "tensor_parallel",
    y: str = "pipeline_parallel",
) -> list[MapPlace]:
    """Return the places of a space that have a strategy or a trial, after these trials.

    Trials that stood in for larger strategies count for the calibration, but not as a place's
    measurement.

    Args:
        calibration: including the trials.
        headroom_gib: memory that must stay free.
        micro_batch_size, num_nodes: restrict the map to these values; all by default.
        x, y: dimensions of the space.
    """
    whole = space.lattice()
    chosen: Mask = np.ones(len(whole), dtype=np.bool_)
    wanted = {"micro_batch_size": micro_batch_size, "num_nodes": num_nodes}
    for name, value in wanted.items():
        if value is not None:
            chosen &= whole[name] == value
    believed = _Believed.of(
        space, calibration, whole.take(chosen), objective=objective, headroom_gib=headroom_gib
    )
    ended = [
        trial
        for trial in trials
        if trial.state in {"ok", "failed"}
        and trial.stands_for is None
        and all(value in {None, getattr(trial.strategy, name)} for name, value in wanted.items())
    ]
    places = [
        believed.place(
            {x: across, y: up},
            [t for t in ended if (t.strategy.value(x), t.strategy.value(y)) == (across, up)],
        )
        for across in values_of(whole, x)
        for up in values_of(whole, y)
    ]
    return [place for place in places if place is not None]


def values_of(lattice: Lattice, dimension: str) -> list[Scalar]:
    """Return the values of a dimension in ascending order."""
    column = lattice[dimension]
    found = np.unique(column).tolist() if column.dtype != object else set(column.tolist()) - {None}
    return in_order(dimension, found)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Believed:
    """Predictions for the n strategies of the map: logarithms of the objective, their standard
    deviations, and probabilities of fitting, shape (n,) each."""

    space: SearchSpace
    objective: Objective
    lattice: Lattice
    log_rate: Array
    deviation: Array
    fits: Array

    @classmethod
    def of(
        cls,
        space: SearchSpace,
        calibration: Calibration,
        lattice: Lattice,
        *,
        objective: Objective,
        headroom_gib: float,
    ) -> _Believed:
        columns = Columns.of(space.transformer, lattice)
        parts = [
            (
                *calibration.time.predict(block)[:2],
                calibration.fit_probability(block, headroom_gib=headroom_gib),
            )
            for block in blocks(columns, calibration)
        ]
        time, variance, fits = (np.concatenate(part) for part in zip(*parts, strict=True))
        work = log_work(lattice, space.transformer, space.machine, objective=objective)
        return cls(
            space=space,
            objective=objective,
            lattice=lattice,
            log_rate=work - time,
            deviation=np.sqrt(variance),
            fits=fits,
        )

    def place(self, values: Mapping[str, Scalar], trials: Sequence[SearchTrial]) -> MapPlace | None:
        """Return the place with these values of its two dimensions; None if nothing ran there and
        the space has no strategy there."""
        masks = [self.lattice[name] == value for name, value in values.items()]
        rows = np.flatnonzero(np.logical_and(*masks))
        ran = {
            trial.strategy: rate
            for trial, rate in zip(trials, self._rates(trials), strict=True)
            if trial.state == "ok"
        }
        strategy = max(ran, key=lambda strategy: ran[strategy], default=None)
        if strategy is None and not len(rows):
            return None
        out_of_memory = sum(trial.out_of_memory for trial in trials)
        state: PlaceState = "measured"
        rate, low, high = ran.get(strategy) if strategy else None, None, None
        fits = 1.0
        if strategy is None:
            state, row = "out_of_memory" if out_of_memory else "too_large", self._promising(rows)
            fits = float(self.fits[rows].max())
            if row is not None:
                state, strategy, fits = "predicted", self.lattice.strategy(row), self.fits[row]
                reach = Z * float(self.deviation[row])
                low, rate, high = np.exp(
                    self.log_rate[row] + np.array([-reach, 0.0, reach])
                ).tolist()
        across, up = values.values()
        return MapPlace(
            x=across,
            y=up,
            state=state,
            strategy=strategy,
            rate=rate,
            low=low,
            high=high,
            fit_probability=float(fits),
            trials=len(trials),
            out_of_memory=out_of_memory,
            strategies=len(rows),
        )

    def _promising(self, rows: Rows) -> int | None:
        fitting = rows[self.fits[rows] >= LIKELY_TO_FIT]
        return int(fitting[np.argmax(self.log_rate[fitting])]) if len(fitting) else None

    def _rates(self, trials: Sequence[SearchTrial]) -> list[float]:
        if not trials:
            return []
        lattice = Lattice.of(
            [trial.strategy for trial in trials], gpus_per_node=self.lattice.gpus_per_node
        )
        work = log_work(
            lattice, self.space.transformer, self.space.machine, objective=self.objective
        )
        return [
            float(np.exp(each)) / trial.iteration_time_s if trial.iteration_time_s else 0.0
            for each, trial in zip(work, trials, strict=True)
        ]
