"""Which layouts a campaign tries next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.errors import NothingToPropose
from autotune.schemas import Objective
from autotune.search.choice import TriedLayouts, choose
from autotune.search.feasibility import MAY_FIT, MemoryBelief, hopeless, risk
from autotune.search.layouts import Floats, Integers, Layouts
from autotune.search.trial import SearchTrial, merged
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy


class Proposer:
    """Proposes strategies from (seed, trials) alone; it remembers nothing between calls.

    Attributes:
        candidates: a row for each layout that the cost model predicts to fit, the highest
            predicted rate first; where none is, all layouts. Twins that differ in
            `gradient_accumulation_steps` alone are one row: the twin with the best predicted rate.
    """

    def __init__(self, space: SearchSpace, *, objective: Objective, seed: int) -> None:
        self._layouts = Layouts.of(space, objective=objective)
        self._seed = seed
        fits = self._layouts.memory_gib <= self._layouts.memory_limit_gib
        lattice = self._layouts.lattice
        self.candidates: Lattice = lattice.take(fits) if fits.any() else lattice

    def propose(
        self, trials: Sequence[SearchTrial], *, count: int, free_nodes: int
    ) -> list[Strategy]:
        """Return up to `count` strategies, none twins and none observed before, to start at once.

        Their nodes together are at most `free_nodes`; the list is empty when nothing worth trying
        is small enough now. The order of `trials` does not matter. Observed layouts that the
        space lacks are left out of account.

        Raises:
            NothingToPropose: every layout has been tried or is ruled out.
        """
        seen = list(trials)
        proposed: list[Strategy] = []
        while len(proposed) < count:
            known = self._known(seen)
            belief = MemoryBelief.learn(self._layouts, known.rows, known.trials)
            probability = belief.probability_to_fit(self._layouts.memory_gib)
            open_rows = self._open(known, probability)
            if not len(open_rows) and not proposed:
                raise NothingToPropose(self._exhausted(known))
            small = self._layouts.lattice["num_nodes"][open_rows] <= free_nodes
            if not small.any():
                break
            row = choose(
                self._layouts,
                known,
                open_rows[small],
                risk=risk(probability),
                seed=self._seed,
            )
            strategy = self._layouts.lattice.strategy(row)
            proposed.append(strategy)
            seen.append(SearchTrial(strategy=strategy, state="running"))
            free_nodes -= strategy.num_nodes
        return proposed

    def _known(self, trials: Sequence[SearchTrial]) -> TriedLayouts:
        rows_of_trials = [(self._layouts.row_of(o.strategy), o) for o in merged(trials)]
        within = [(row, o) for row, o in rows_of_trials if row is not None]
        rows = np.array([row for row, _ in within], dtype=np.int64)
        return TriedLayouts(trials=[o for _, o in within], rows=rows)

    def _open(self, known: TriedLayouts, probability: Floats) -> Integers:
        """Return the rows to choose among now, most promising first; empty when there are none.

        Those that may well fit. When these are used up: none as soon as anything was measured, for
        a trial that will hardly run buys nothing; before that, those with the least memory.
        """
        failed = known.where(state="failed", out_of_memory=True)
        untried = ~hopeless(self._layouts, probability, failed)
        untried[known.rows] = False
        possible = np.flatnonzero(untried & (probability >= MAY_FIT))
        if len(possible) or known.log_rates:
            return possible
        return self._least_memory(untried)

    def _least_memory(self, untried: NDArray[np.bool_]) -> Integers:
        """Return the untried with least memory for each number of nodes: the likeliest to fit."""
        rows = np.flatnonzero(untried)
        rows = rows[np.argsort(self._layouts.memory_gib[rows], kind="stable")]
        _, first = np.unique(self._layouts.lattice["num_nodes"][rows], return_index=True)
        return np.asarray(rows[np.sort(first)], dtype=np.int64)

    def _exhausted(self, known: TriedLayouts) -> str:
        tried, every = len(known.rows), len(self._layouts)
        if tried == every:
            return f"all {every} layouts of the space have been tried"
        return (
            f"{tried} of the space's {every} layouts have been tried; the other {every - tried} "
            "are not likely to fit in memory, judged by what has run and what ran out of it"
        )
