"""The searches that are compared on simulated machines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.calibration import Observation
from autotune.errors import NothingToPropose
from autotune.search import CampaignBelief, Proposer, SearchTrial
from autotune.search.layouts import POINT_DIMENSIONS
from search_spaces.strategy import Strategy
from tests.benchmarks.replay.stock import StockDeepHyper
from tests.benchmarks.worlds.world import World

EARLIER_TRIALS = 12
"""Of the campaign before, which a warm search knows."""

Chooser = Callable[[SearchTrial | None], int | None]
"""Told the latest trial, gives the next row; None when it has no more."""


@dataclass(frozen=True, kw_only=True)
class SearchRun:
    """One search in one world; `trials` is None where it did not get there."""

    search: str
    question: str
    seed: int
    trials: int | None
    failures: int
    seconds_per_proposal: float


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
    """The layouts that it predicts to fit, in its order: what a search without learning does."""
    fits = here.layouts.memory_gib <= here.layouts.memory_limit_gib
    rows = iter([*np.flatnonzero(fits).tolist(), *np.flatnonzero(~fits).tolist()])
    return lambda _latest: next(rows, None)


def at_random(here: World) -> Chooser:
    rows = iter(np.random.default_rng(here.seed).permutation(len(here.layouts)).tolist())
    return lambda _latest: next(rows, None)


def pruned_grid(here: World) -> Chooser:
    """From the least model parallelism upward, dropping what a trial dominates: what needs as much
    memory as one that ran out of it, and what splits the model more than one that ran."""
    strategies = list(here.layouts.lattice)
    order = sorted(range(len(strategies)), key=lambda row: _least_parallel(strategies[row]))
    failed: list[Strategy] = []
    ran: list[Strategy] = []

    def remaining() -> Iterator[int]:
        for row in order:
            here_now = strategies[row]
            too_big = any(_needs_more(here_now, than=bad) for bad in failed)
            if not too_big and not any(_splits_more(here_now, than=good) for good in ran):
                yield row

    rows = remaining()

    def choose(latest: SearchTrial | None) -> int | None:
        if latest is not None:
            (failed if latest.state == "failed" else ran).append(latest.strategy)
        return next(rows, None)

    return choose


def _least_parallel(s: Strategy) -> tuple[int, ...]:
    recompute = int(s.activation_checkpointing == "full")
    degree = s.tensor_parallel * s.pipeline_parallel
    return (-s.num_nodes, degree, s.tensor_parallel, recompute, s.micro_batch_size, -s.zero_stage)


def _needs_more(one: Strategy, *, than: Strategy) -> bool:
    """Whether `one` surely needs as much memory on each GPU as `than`."""
    saves = {"none": 0, "selective": 1, "full": 2}
    return (
        one.tensor_parallel <= than.tensor_parallel
        and one.pipeline_parallel <= than.pipeline_parallel
        and one.micro_batch_size >= than.micro_batch_size
        and one.zero_stage <= than.zero_stage
        and one.num_nodes <= than.num_nodes
        and saves[one.activation_checkpointing] <= saves[than.activation_checkpointing]
    )


def _splits_more(one: Strategy, *, than: Strategy) -> bool:
    """Whether `one` is `than` with more model parallelism or recomputation, and else the same."""
    saves = {"none": 0, "selective": 1, "full": 2}
    return (
        one.tensor_parallel >= than.tensor_parallel
        and one.pipeline_parallel >= than.pipeline_parallel
        and one.micro_batch_size == than.micro_batch_size
        and one.zero_stage >= than.zero_stage
        and one.num_nodes <= than.num_nodes
        and saves[one.activation_checkpointing] >= saves[than.activation_checkpointing]
    )


def stock_deephyper(here: World) -> Chooser:
    """Over the legal layouts."""
    search = StockDeepHyper(POINT_DIMENSIONS, here.layouts.numbers, seed=here.seed)
    tokens = np.exp(here.layouts.log_work)
    asked: list[int] = []

    def choose(latest: SearchTrial | None) -> int | None:
        if latest is not None:
            seconds = latest.iteration_time_s
            search.tell(asked[-1], float(tokens[asked[-1]]) / seconds if seconds else None)
        row = search.ask()
        asked.extend([] if row is None else [row])
        return row

    return choose


SEARCHES: dict[str, Callable[[World], Chooser]] = {
    "ours": ours,
    "ours, another model known": ours_warm,
    "cost model alone": cost_model_alone,
    "pruned grid": pruned_grid,
    "stock DeepHyper": stock_deephyper,
    "random": at_random,
}


def run(search: str, here: World, *, name: str, most: int) -> SearchRun:
    """Trials until one is within 1 % of the best (by its true rate), at most `most`."""
    choose = SEARCHES[search](here)
    latest: SearchTrial | None = None
    failures, thinking, tried = 0, 0.0, 0
    solved = False
    while tried < most and not solved:
        started = time.perf_counter()
        row = choose(latest)
        thinking += time.perf_counter() - started
        if row is None:
            break
        tried += 1
        latest = here.trial(row)
        failures += latest.state == "failed"
        solved = bool(here.rates[row] >= here.target)
    return SearchRun(
        search=search,
        question=name,
        seed=here.seed,
        trials=tried if solved else None,
        failures=failures,
        seconds_per_proposal=thinking / max(tried, 1),
    )
