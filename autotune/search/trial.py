"""What is known of a layout: the rows of the store, as the search reads them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from search_spaces.strategy import Strategy

SearchState = Literal["running", "ok", "failed", "refused"]
"""`refused`: never started, so that nothing is known of it; it is not tried again."""


@dataclass(frozen=True, kw_only=True)
class SearchTrial:
    """One trial, or all trials of one layout after `merged`.

    Attributes:
        objective: the rate to maximise (tokens/s, or tokens/s per GPU); given when `state` is ok.
        out_of_memory: whether a failed trial failed for want of memory.
        peak_memory_gib: of the fullest rank, where measured.

    Raises:
        ValueError: an ok trial without a finite, positive objective.
    """

    strategy: Strategy
    state: SearchState
    objective: float | None = None
    out_of_memory: bool = False
    peak_memory_gib: float | None = None

    def __post_init__(self) -> None:
        rate = self.objective
        if self.state == "ok" and not (rate is not None and math.isfinite(rate) and rate > 0):
            raise ValueError(f"an ok trial needs a positive objective, not {rate!r}")

    @property
    def log_rate(self) -> float:
        """Natural logarithm of the objective; only of an ok trial."""
        return math.log(float(self.objective or 0.0))


def merged(trials: Iterable[SearchTrial]) -> list[SearchTrial]:
    """Return one trial for each layout, in an order that does not depend on the order given.

    A layout with an ok trial is ok, with the median rate of these; otherwise it is running if any
    of its trials runs; otherwise it failed, or was refused if none of them ever started.
    """
    by_layout: dict[tuple[Any, ...], list[SearchTrial]] = {}
    for trial in trials:
        by_layout.setdefault(trial.strategy.layout_key(), []).append(trial)
    return [_one(by_layout[key]) for key in sorted(by_layout)]


def _one(same: Sequence[SearchTrial]) -> SearchTrial:
    strategy = min(o.strategy for o in same)
    ok = [o for o in same if o.state == "ok"]
    if ok:
        peaks = [o.peak_memory_gib for o in ok if o.peak_memory_gib is not None]
        return SearchTrial(
            strategy=strategy,
            state="ok",
            objective=math.exp(median(o.log_rate for o in ok)),
            peak_memory_gib=max(peaks, default=None),
        )
    states: tuple[SearchState, ...] = ("running", "failed", "refused")
    state = next(state for state in states if any(o.state == state for o in same))
    return SearchTrial(
        strategy=strategy,
        state=state,
        out_of_memory=state == "failed" and any(o.out_of_memory for o in same),
    )
