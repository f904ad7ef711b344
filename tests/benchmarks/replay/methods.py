"""The searches that are compared, and all of their replays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    "ours_wrong": Method(
        lambda here, variant: ours.wrong(here, variant=variant), replays=ours.WRONG_VARIANTS
    ),
    "ours_shuffled": Method(lambda here, seed: ours.shuffled(here, seed=seed)),
    "random": Method(lambda here, seed: peers.at_random(here, seed=seed)),
    "pruned_grid": Method(lambda here, _: peers.pruned_grid(here), replays=1),
    "optuna_tpe": Method(lambda here, seed: peers.optuna_tpe(here, seed=seed)),
    "stock_deephyper": Method(lambda here, seed: peers.stock_deephyper(here, seed=seed)),
}


@dataclass(frozen=True)
class Job:
    """One replay: of the landscape at a place in their list."""

    landscape: int
    method: str
    number: int


Replays = Mapping[str, Mapping[str, Sequence[Replay]]]
"""By the landscape's name, then by the method's."""

_landscapes: Sequence[Landscape] = ()
"""Of this process; each has its own copy."""


def jobs(landscapes: Sequence[Landscape], *, methods: Sequence[str], seeds: int) -> Iterator[Job]:
    for place, landscape in enumerate(landscapes):
        for name in methods:
            method = METHODS[name]
            if len(landscape.earlier) or not method.needs_earlier:
                replays = seeds if method.replays is None else method.replays
                yield from (Job(place, name, number) for number in range(replays))


def replays_of(
    landscapes: Sequence[Landscape],
    *,
    methods: Sequence[str],
    seeds: int,
    processes: int,
    progress: Progress,
) -> Replays:
    """Every method on every landscape. The same for any number of processes."""
    results: dict[str, dict[str, list[Replay]]] = defaultdict(lambda: defaultdict(list))
    todo = list(jobs(landscapes, methods=methods, seeds=seeds))
    # Forks of a process with threads, as the one that shows progress has, may hang.
    with ProcessPoolExecutor(
        processes, get_context("spawn"), initializer=_begin, initargs=(landscapes,)
    ) as pool:
        done = progress.track(pool.map(_replayed, todo), total=len(todo), description="replays")
        for job, one in zip(todo, done, strict=True):
            results[landscapes[job.landscape].name][job.method].append(one)
    return results


def _begin(landscapes: Sequence[Landscape]) -> None:
    global _landscapes
    _landscapes = landscapes
    # Small matrices: threads win nothing.
    threadpool_limits(limits=1)


def _replayed(job: Job) -> Replay:
    landscape = _landscapes[job.landscape]
    return replay(landscape, METHODS[job.method].start(landscape, job.number))
