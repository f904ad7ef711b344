"""One search replayed: what it chooses is revealed, until it comes within 1 % of the best; and
landscapes as libraries see them: dimensions with levels."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from autotune.cost_model.columns import Array
from tests.benchmarks.replay.landscapes import STRATEGY_COLUMNS, Landscape

WITHIN = 0.01
"""Of the best measured rate: the search is there."""


@dataclass(frozen=True, kw_only=True)
class Revealed:
    """A trial that ended: a row of the landscape, and the logarithm of its rate, None where it ran
    out of memory."""

    row: int
    log_rate: float | None


Trial = TypeVar("Trial")
Chooser = Callable[[Revealed | None], int | None]
"""Takes the latest trial, None before the first; gives the next row, None when it has no more."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """One search.

    Attributes:
        trials: until one was within 1 % of the best; one more than it may have where none was.
        solved: whether one was.
        failures: trials until then that ran out of memory.
        regrets: after each trial, the share of the best rate that the best trial so far lacks; 1
            where none has run.
    """

    trials: int
    solved: bool
    failures: int
    regrets: tuple[float, ...]
    seconds_per_proposal: float


@dataclass(frozen=True, kw_only=True)
class OwnStop:
    """A search that ended by itself.

    Attributes:
        failures: of its trials, those that ran out of memory.
        within: whether its best is within 1 % of the best.
    """

    trials: int
    failures: int
    within: bool


def revealed(landscape: Landscape, row: int) -> Revealed:
    rate = float(landscape.log_rate[row])
    return Revealed(row=row, log_rate=rate if math.isfinite(rate) else None)


def replay(landscape: Landscape, choose: Chooser) -> Replay:
    def reveal(row: int) -> Revealed:
        return revealed(landscape, row)

    return search(choose, reveal, landscape.log_rate, most=len(landscape))


def search(
    choose: Callable[[Trial | None], int | None],
    reveal: Callable[[int], Trial],
    log_rate: Array,
    *,
    most: int,
) -> Replay:
    """Search until a trial is within 1 % of the best rate, or `most` were spent.

    Args:
        reveal: what a trial of a row reports.
        log_rate: shape (n,), logarithm of the true rates; NaN where memory does not suffice.

    Raises:
        RuntimeError: the search tries a row twice.
    """
    best, reached, thinking_s = float(np.nanmax(log_rate)), -math.inf, 0.0
    latest: Trial | None = None
    rows: list[int] = []
    regrets: list[float] = []
    while len(rows) < most and (not regrets or regrets[-1] > WITHIN):
        began = time.perf_counter()
        row = choose(latest)
        thinking_s += time.perf_counter() - began
        if row is None:
            break
        if row in rows:
            raise RuntimeError(f"row {row} was tried twice")
        rows.append(row)
        latest = reveal(row)
        reached = float(np.fmax(reached, log_rate[row]))
        regrets.append(-math.expm1(reached - best))
    solved = bool(regrets) and regrets[-1] <= WITHIN
    return Replay(
        trials=len(rows) if solved else most + 1,
        solved=solved,
        failures=int(np.isnan(log_rate[rows]).sum()),
        regrets=tuple(regrets),
        seconds_per_proposal=thinking_s / max(len(rows), 1),
    )


def summary(replays: Sequence[Replay]) -> dict[str, float]:
    """Failures are means, solved a share."""
    trials = [one.trials for one in replays]
    return {
        "median": float(np.median(trials)),
        "p90": float(np.percentile(trials, 90)),
        "worst": float(max(trials)),
        "failures": float(np.mean([one.failures for one in replays])),
        "solved": float(np.mean([one.solved for one in replays])),
        "seconds_per_proposal": float(np.mean([one.seconds_per_proposal for one in replays])),
    }


Levels = NDArray[np.int64]


class Grid:
    """A landscape as libraries see it: dimensions with ordered levels, of which some combinations
    are strategies.

    Attributes:
        names: of the dimensions that have several values, alphabetical as DeepHyper gives them.
        levels: shape (n, d), the number of each strategy's value among those that occur.
    """

    def __init__(self, landscape: Landscape) -> None:
        columns = {name: _levels(landscape, name) for name in STRATEGY_COLUMNS}
        self.names = sorted(name for name, column in columns.items() if column.max() > 0)
        self.levels: Levels = np.stack([columns[name] for name in self.names], axis=1)
        self._untried = np.ones(len(landscape), dtype=np.bool_)

    @property
    def untried(self) -> NDArray[np.int64]:
        return np.flatnonzero(self._untried)

    def point(self, row: int) -> dict[str, int]:
        return dict(zip(self.names, self.levels[row].tolist(), strict=True))

    def take(self, point: dict[str, int]) -> int | None:
        """The untried strategy at or next to a point, which then is tried; None where all are.

        Distances are in levels, as a share of each dimension's range.
        """
        rows = self.untried
        if not len(rows):
            return None
        wanted = np.array([point[name] for name in self.names])
        apart = np.abs(self.levels[rows] - wanted) / self.levels.max(axis=0)
        row = int(rows[np.argmin(apart.sum(axis=1))])
        self._untried[row] = False
        return row


def _levels(landscape: Landscape, name: str) -> Levels:
    cells = [row.figures.get(name, row.words.get(name, -1.0)) for row in landscape.rows]
    _, level = np.unique(np.array(cells), return_inverse=True)
    return np.asarray(level, dtype=np.int64)
