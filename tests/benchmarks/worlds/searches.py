"""The searches that are compared on simulated machines."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from autotune.calibration import Observation
from autotune.cost_model.columns import Columns
from autotune.errors import NothingToPropose
from autotune.schemas.choices import SearchMethod
from autotune.search import CampaignBelief, Proposer, SearchTrial
from autotune.search.layouts import Layouts
from autotune.search.uncalibrated import OUT_OF_MEMORY, uncalibrated
from search_spaces.transformer import Transformer
from tests.benchmarks.replay.trials import Replay, search
from tests.benchmarks.worlds.world import World

EARLIER_TRIALS = 12
"""Of the campaign before, which a warm search knows."""

Chooser = Callable[[SearchTrial | None], int | None]


def ours(here: World) -> Chooser:
    return _proposer(here, ())


def ours_warm(here: World) -> Chooser:
    """After an earlier campaign about another model on the same machine."""
    before = here.before()
    choose = ours(before)
    latest: SearchTrial | None = None
    earlier: list[Observation] = []
    for _ in range(EARLIER_TRIALS):
        row = choose(latest)
        if row is None:
            break
        latest = before.trial(row)
        if (told := latest.observation(before.space.transformer)) is not None:
            earlier.append(told)
    return _proposer(here, earlier)


def _proposer(here: World, earlier: Sequence[Observation]) -> Chooser:
    belief = CampaignBelief.over(here.space, earlier=earlier)
    proposer = Proposer(here.space, objective="tokens_per_s", seed=here.seed, belief=belief)
    seen: list[SearchTrial] = []

    def choose(latest: SearchTrial | None) -> int | None:
        seen.extend([] if latest is None else [latest])
        try:
            found = proposer.propose(seen, count=1, free_nodes=here.space.nodes)
        except NothingToPropose:
            return None
        return here.layouts.row_of(found[0].strategy)

    return choose


def cost_model_alone(here: World) -> Chooser:
    fits = here.layouts.memory_gib <= here.layouts.memory_limit_gib
    rows = iter([*np.flatnonzero(fits).tolist(), *np.flatnonzero(~fits).tolist()])
    return lambda _latest: next(rows, None)


class ProductSearch:
    """One of the product's searches that know what is legal and nothing else, over layouts."""

    def __init__(
        self, method: SearchMethod, layouts: Layouts, transformer: Transformer, *, seed: int
    ) -> None:
        columns = Columns.of(transformer, layouts.lattice)
        self._choose = uncalibrated(method, layouts, columns, surrogate="forest", seed=seed)
        self._open = np.ones(len(layouts), dtype=np.bool_)
        self._results: dict[int, float | str] = {}

    def tell(self, row: int, rate: float | None) -> None:
        self._open[row] = False
        self._results[row] = math.log(rate) if rate else OUT_OF_MEMORY

    def ask(self) -> int | None:
        """An untried layout; None where none is worth a trial."""
        left = np.flatnonzero(self._open)
        row = self._choose(left, self._results) if self._choose and len(left) else None
        if row is not None:
            self._open[row] = False
        return row


def without_belief(method: SearchMethod) -> Callable[[World], Chooser]:
    def start(here: World) -> Chooser:
        search = ProductSearch(method, here.layouts, here.space.transformer, seed=here.seed)
        tokens = np.exp(here.layouts.log_work)

        def choose(latest: SearchTrial | None) -> int | None:
            if latest is not None:
                row, seconds = here.layouts.row_of(latest.strategy), latest.iteration_time_s
                assert row is not None
                search.tell(row, float(tokens[row]) / seconds if seconds else None)
            return search.ask()

        return choose

    return start


SEARCHES: dict[str, Callable[[World], Chooser]] = {
    "ours": ours,
    "ours, another model known": ours_warm,
    "cost model alone": cost_model_alone,
    "pruned grid": without_belief("grid"),
    "stock DeepHyper": without_belief("deephyper"),
    "random": without_belief("random"),
}


def run(name: str, here: World, *, most: int) -> Replay:
    """Trials until one is within 1 % of the best (by its true rate), at most `most`."""
    with np.errstate(divide="ignore"):
        log_rate = np.where(here.rates > 0.0, np.log(here.rates), np.nan)
    return search(SEARCHES[name](here), here.trial, log_rate, most=most)
