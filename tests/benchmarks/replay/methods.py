"""The searches that are compared, and all of their replays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from rich.progress import Progress
from threadpoolctl import threadpool_limits

from tests.benchmarks.replay import ours, peers
from tests.benchmarks.replay.landscapes import Landscape
from tests.benchmarks.replay.trials import Chooser, Replay, replay

WARM_DRAWS = 10

Start = Callable[[Landscape, int], Chooser]
"""A search afresh, its `number`-th replay."""


@dataclass(frozen=True)
class Method:
    """One way to search.

    Attributes:
        replays: of each landscape; None for as many as there are seeds.
        needs_earlier: makes sense only where the stack showed something before.
    """

    start: Start
    replays: int | None = None
    needs_earlier: bool = False


METHODS: Mapping[str, Method] = {
    "ours": Method(lambda here, _: ours.cold(here), replays=1),
    "ours_warm": Method(
        lambda here, draw: ours.warm(here, draw=draw), replays=WARM_DRAWS, needs_earlier=True
    ),
    "ours_imported": Method(lambda here, _: ours.imported(here), replays=1, needs_earlier=True),
    "ours_wrong": Method(
        lambda here, variant: ours.wrong(here, variant=variant), replays=ours.WRONG_VARIANTS
    ),
    "ours_shuffled": Method(lambda here, seed: ours.shuffled(here, seed=seed)),
    "random": Method(lambda here, seed: peers.at_random(here, seed=seed)),
    "pruned_grid": Method(lambda here, _: peers.pruned_grid(here), replays=1),
    "optuna_tpe": Method(lambda here, seed: peers.optuna_tpe(here, seed=seed)),
    "optuna_gp": Method(lambda here, seed: peers.optuna_gp(here, seed=seed)),
    "pruned_deephyper": Method(lambda here, seed: peers.pruned_deephyper(here, seed=seed)),
    "stock_deephyper": Method(lambda here, seed: peers.stock_deephyper(here, seed=seed)),
}


Replays = Mapping[str, Mapping[str, Sequence[Replay]]]
"""By the landscape's name, then by the method's."""


def replays_of(
    landscapes: Sequence[Landscape],
    *,
    methods: Sequence[str],
    seeds: int,
    processes: int,
    progress: Progress,
) -> Replays:
    """Every method on every landscape. The same for any number of processes."""
    todo = [
        (landscape, name, number)
        for landscape in landscapes
        for name in methods
        if len(landscape.earlier) or not METHODS[name].needs_earlier
        for number in range(METHODS[name].replays or seeds)
    ]
    results: dict[str, dict[str, list[Replay]]] = defaultdict(lambda: defaultdict(list))
    # Forks of a process with threads, as the one that shows progress has, may hang. Matrices are
    # small: threads of a library win nothing.
    with ProcessPoolExecutor(
        processes, get_context("spawn"), initializer=threadpool_limits, initargs=(1,)
    ) as pool:
        done = progress.track(pool.map(_replayed, todo), total=len(todo), description="replays")
        for (landscape, name, _), one in zip(todo, done, strict=True):
            results[landscape.name][name].append(one)
    return results


def _replayed(job: tuple[Landscape, str, int]) -> Replay:
    landscape, name, number = job
    return replay(landscape, METHODS[name].start(landscape, number))
