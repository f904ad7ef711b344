"""Map of a space: the best rate for each tensor and pipeline parallelism."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from autotune.calibration import Calibration
from autotune.calibration.calibration import Z
from autotune.cost_model.columns import Array, Columns, Mask, Rows
from autotune.explanation.rates import blocks
from autotune.schemas.choices import Objective
from autotune.schemas.predictions import LIKELY_TO_FIT
from autotune.search import SearchTrial
from autotune.search.layouts import log_work
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy

CellState = Literal["measured", "predicted", "out_of_memory", "illegal"]
"""`measured`: a strategy of the cell ran; `predicted`: none ran and one probably fits;
`out_of_memory`: none is likely to fit, by trials or prediction; `illegal`: the space has no
strategy there."""


@dataclass(frozen=True, kw_only=True)
class MapCell:
    """All strategies with one tensor and one pipeline parallelism.

    Attributes:
        strategy: the best that ran, or else the best predicted that probably fits; None in the
            other states.
        rate: its objective, measured or predicted as `state` says; `low` and `high` bound the 80 %
            interval of a prediction.
        fit_probability: probability that it fits; in an `out_of_memory` cell the highest of its
            strategies, 0 if none is legal.
        trials: number of trials in the cell that ended; `out_of_memory` of them ran out of memory.
        strategies: number of legal strategies.
    """

    tensor_parallel: int
    pipeline_parallel: int
    state: CellState
    strategy: Strategy | None
    rate: float | None
    low: float | None
    high: float | None
    fit_probability: float
    trials: int
    out_of_memory: int
    strategies: int


@dataclass(frozen=True, kw_only=True)
class LayoutMap:
    """Cells in row-major order: `tensor_parallel` by `pipeline_parallel`.

    Attributes:
        micro_batch_sizes, num_nodes: all legal values, to filter the map by.
    """

    objective: Objective
    tensor_parallel: tuple[int, ...]
    pipeline_parallel: tuple[int, ...]
    micro_batch_sizes: tuple[int, ...]
    num_nodes: tuple[int, ...]
    cells: tuple[MapCell, ...]


def layout_map(
    space: SearchSpace,
    calibration: Calibration,
    trials: Sequence[SearchTrial],
    *,
    objective: Objective = "tokens_per_s",
    headroom_gib: float = 0.0,
    micro_batch_size: int | None = None,
    num_nodes: int | None = None,
) -> LayoutMap:
    """Return the map of a space after these trials.

    Trials that stood in for larger strategies count for the calibration, but not as a cell's
    measurement.

    Args:
        calibration: including the trials.
        headroom_gib: memory that must stay free.
        micro_batch_size, num_nodes: restrict the map to these values; all by default.
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
    tensor, pipeline = _legal(whole, "tensor_parallel"), _legal(whole, "pipeline_parallel")
    cells = [
        believed.cell(t, p, [trial for trial in ended if _place(trial.strategy) == (t, p)])
        for t in tensor
        for p in pipeline
    ]
    return LayoutMap(
        objective=objective,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        micro_batch_sizes=_legal(whole, "micro_batch_size"),
        num_nodes=_legal(whole, "num_nodes"),
        cells=tuple(cells),
    )


def _legal(lattice: Lattice, dimension: str) -> tuple[int, ...]:
    return tuple(np.unique(lattice[dimension]).tolist())


def _place(strategy: Strategy) -> tuple[int, int]:
    return strategy.tensor_parallel, strategy.pipeline_parallel


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

    def cell(self, tensor: int, pipeline: int, trials: Sequence[SearchTrial]) -> MapCell:
        rows = np.flatnonzero(
            (self.lattice["tensor_parallel"] == tensor)
            & (self.lattice["pipeline_parallel"] == pipeline)
        )
        ran = {
            trial.strategy: rate
            for trial, rate in zip(trials, self._rates(trials), strict=True)
            if trial.state == "ok"
        }
        best = max(ran, key=lambda strategy: ran[strategy], default=None)
        state: CellState = "measured"
        strategy, rate, low, high = best, ran.get(best) if best else None, None, None
        fits = 1.0
        if best is None:
            state, row = self._promising(rows)
            fits = float(self.fits[rows].max(initial=0.0))
            if row is not None:
                strategy, fits = self.lattice.strategy(row), float(self.fits[row])
                reach = Z * float(self.deviation[row])
                low, rate, high = np.exp(
                    self.log_rate[row] + np.array([-reach, 0.0, reach])
                ).tolist()
        return MapCell(
            tensor_parallel=tensor,
            pipeline_parallel=pipeline,
            state=state,
            strategy=strategy,
            rate=rate,
            low=low,
            high=high,
            fit_probability=fits,
            trials=len(trials),
            out_of_memory=sum(trial.out_of_memory for trial in trials),
            strategies=len(rows),
        )

    def _promising(self, rows: Rows) -> tuple[CellState, int | None]:
        """Return the state of a cell without trials, and its best row that probably fits."""
        if not len(rows):
            return "illegal", None
        fitting = rows[self.fits[rows] >= LIKELY_TO_FIT]
        if not len(fitting):
            return "out_of_memory", None
        return "predicted", int(fitting[np.argmax(self.log_rate[fitting])])

    def _rates(self, trials: Sequence[SearchTrial]) -> list[float]:
        """Return the measured objective of each trial; 0 if it has none."""
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
