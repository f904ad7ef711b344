"""Check of projections from few nodes or few layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autotune.search.evidence import Known
from autotune.search.layouts import Layouts
from autotune.search.stand_ins import StandIns
from autotune.search.trial import SearchTrial
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy

CHECK_AFTER = 3
"""Stand-ins that were timed when the best of their layouts is measured in full, unless some layout
has been measured both ways by then."""


@dataclass(frozen=True, kw_only=True)
class ProjectionCheck:
    """Runs to make so that some layout is measured both in full and by a stand-in.

    Attributes:
        pool_nodes: nodes that trials may use at the same time.
    """

    space: SearchSpace
    layouts: Layouts
    stand_ins: StandIns
    pool_nodes: int

    def runs(self, known: Known) -> Iterator[tuple[Strategy, Strategy | None]]:
        """Yield strategies with their stand-ins, the cheapest check first; nothing once a check is
        done or running.

        A layout measured in full runs by a stand-in, which is cheap; otherwise the best layout
        timed by a stand-in runs in full.
        """
        if known.projections.count:
            return
        full = self._in_full(known)
        if any(trial.state == "running" for trial in full):
            return
        narrow = {t.strategy: t.state for t in known.trials if t.stands_for is not None}
        for trial in full:
            instead = self.stand_ins.of(trial.strategy)
            if trial.state != "ok":
                continue
            if narrow.get(instead) == "running":
                return
            if instead not in narrow:
                yield trial.strategy, instead
        leader = self._leader(known, tried=[trial.strategy for trial in full])
        if leader is not None:
            yield leader, None

    def _in_full(self, known: Known) -> list[SearchTrial]:
        """Return the full trials of layouts that have stand-ins."""
        full = [trial for trial in known.trials if trial.stands_for is None]
        if not full:
            return []
        gpus = self.space.machine.gpus_per_node
        lattice = Lattice.of([trial.strategy for trial in full], gpus_per_node=gpus)
        possible = self.stand_ins.possible(self.space, lattice)
        return [trial for trial, can in zip(full, possible, strict=True) if can]

    def _leader(self, known: Known, *, tried: Sequence[Strategy]) -> Strategy | None:
        """Return the best layout timed by a stand-in that fits the pool; None while there are too
        few."""
        timed = [layout for layout, run in known.runs.items() if run != layout]
        if len(timed) < CHECK_AFTER:
            return None
        timed.sort(key=lambda layout: known.measured[layout], reverse=True)
        strategies = [self.layouts.lattice.strategy(layout) for layout in timed]
        return next(
            (s for s in strategies if s not in tried and s.num_nodes <= self.pool_nodes), None
        )
