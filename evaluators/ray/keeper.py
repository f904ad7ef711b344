"""The actor that keeps trials on a Ray cluster, whether or not somebody polls them.

It is detached, found by name, and lives on the head. It requests a placement group for each trial,
runs the trial there, and stores the result until it is fetched. Everything that it created ends
with it. Like `evaluators.ray.node`, it is sent to the cluster by value.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from evaluators.ray.node import MOST_AT_ONCE, TrialNode

HEAD = "node:__internal_head__"
"""A resource that every head has."""

LINGER_S = 1.0
"""How long free nodes wait for a trial of the same shape: Ray needs about a second to create a
placement group and its actors."""
PATIENCE_S = 300.0
"""After this wait, no later trial overtakes a trial."""
BLAME_S = 20.0
"""Time within which Ray detects a dead node."""
ENDING_S = 5.0
"""Time for the remaining nodes to end their processes, which are killed when nodes are released."""
OVERDUE_S = 120.0
"""Time after its limit when a trial whose node does not answer is given up."""
RETENTION_S = 7 * 86_400.0
"""How long a result that nobody fetches is stored."""
IDLE_S = 900.0
"""The actor ends after this time without a trial or a call."""

CALLS_AT_ONCE = 16
"""Concurrent calls of a node: its run, its log, and the requests of steps."""

_LOW_ON_MEMORY = "low on memory"


@dataclass(kw_only=True, eq=False)
class PlacedNodes:
    """A placement group with one actor per bundle."""

    group: PlacementGroup
    shape: tuple[Any, ...]
    actors: list[Any]
    nodes: list[dict[str, str]] = field(default_factory=list)

    @property
    def hosts(self) -> str:
        return ",".join(node["host"] for node in self.nodes)

    @property
    def master(self) -> str:
        addresses = {node["address"] for node in self.nodes}
        return self.nodes[0]["address"] if len(addresses) > 1 else "127.0.0.1"

    async def end_all(self) -> None:
        """End the processes on the nodes that are still alive."""
        ends = asyncio.gather(
            *[_answer(actor.end_all.remote()) for actor in self.actors], return_exceptions=True
        )
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ends, ENDING_S)

    def remove(self) -> None:
        remove_placement_group(self.group)


@dataclass(kw_only=True, eq=False)
class KeeperTrial:
    """One attempt at a trial, and its state.

    Attributes:
        work: the result of `evaluators.ray.backend.work_of`.
        task: places and runs it; cancelled with the trial.
        keeping: brings it to its end, whatever happens to `task`.
        log: a temporary file.
        began_at: when it got its nodes (epoch); `began` is the same by the monotonic clock, for
            durations; 0 until then.
        reason: why it waits.
        end: how it ended: `kind` (`script`, `node`, `lost`, `memory`, `cancelled`), `reason`, and
            the result of `TrialNode.run`.
    """

    name: str
    work: Mapping[str, Any]
    log: IO[bytes] = field(default_factory=tempfile.TemporaryFile)
    arrived: float = field(default_factory=time.monotonic)
    task: asyncio.Task[dict[str, Any]] | None = None
    keeping: asyncio.Task[None] | None = None
    placed: PlacedNodes | None = None
    offered: asyncio.Future[PlacedNodes] | None = None
    began_at: float = 0.0
    began: float = 0.0
    logged: int = 0
    reason: str = ""
    end: dict[str, Any] | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[Any, ...]:
        bundle: Mapping[str, float] = self.work["bundle"]
        return (*sorted(bundle.items()), self.work["nodes"], *self.excluded)

    @property
    def excluded(self) -> Sequence[str]:
        excluded: Sequence[str] = self.work.get("exclude", ())
        return excluded

    def report(self, offset: int) -> dict[str, Any]:
        """Return its state, with its log from `offset` on; the end is reported after the whole
        log."""
        self.log.seek(offset)
        part = self.log.read(MOST_AT_ONCE)
        report: dict[str, Any] = {"log": part, "reason": self.reason, "end": None}
        if self.placed:
            report |= {
                "hosts": self.placed.hosts,
                "node_ids": [node["id"] for node in self.placed.nodes],
                "group": self.placed.group.id.hex(),
            }
        if self.end and offset + len(part) >= self.logged:
            report |= {"end": self.end, "files": dict(self.files)}
        return report


class TrialKeeper:
    """Keeps trials by name; asynchronous, in a single thread."""

    def __init__(self) -> None:
        self._trials: dict[str, KeeperTrial] = {}
        self._waiting: deque[KeeperTrial] = deque()
        self._free: dict[tuple[Any, ...], list[PlacedNodes]] = {}
        self._called = time.monotonic()
        self._upkeep: asyncio.Task[None] | None = None

    async def sync(
        self,
        *,
        submit: Sequence[tuple[str, Mapping[str, Any]]],
        cancel: Sequence[str],
        forget: Sequence[str],
        follow: Mapping[str, int],
    ) -> dict[str, dict[str, Any]]:
        """Carry out the requests, and return the state of the known trials in `follow`.

        Args:
            submit: name and work of trials; a known one continues.
            follow: by name, the number of log bytes already fetched.
        """
        self._called = time.monotonic()
        self._upkeep = self._upkeep or asyncio.ensure_future(self._keep_up())
        for name, work in submit:
            if name not in self._trials:
                self._begin(name, work)
        for name in cancel:
            trial = self._trials.get(name)
            if trial and trial.task:
                trial.task.cancel()
        for name in forget:
            if trial := self._trials.pop(name, None):
                trial.log.close()
        return {
            name: self._trials[name].report(offset)
            for name, offset in follow.items()
            if name in self._trials
        }

    def _begin(self, name: str, work: Mapping[str, Any]) -> None:
        trial = self._trials[name] = KeeperTrial(name=name, work=work)
        trial.task = asyncio.ensure_future(self._place_and_run(trial))
        trial.keeping = asyncio.ensure_future(self._keep(trial, trial.task))

    async def _place_and_run(self, trial: KeeperTrial) -> dict[str, Any]:
        trial.placed = await self._place(trial)
        trial.began_at, trial.began = time.time(), time.monotonic()
        return await self._run(trial, trial.placed)

    async def _keep(self, trial: KeeperTrial, task: asyncio.Task[dict[str, Any]]) -> None:
        await asyncio.wait({task})
        end = await _end_of(task, trial.placed)
        if trial.placed:
            healthy = end["kind"] == "script"
            if not healthy:
                await trial.placed.end_all()
            self._release(trial.placed, healthy=healthy)
        held_s = time.monotonic() - trial.began if trial.began_at else 0.0
        began_at = trial.began_at or time.time()
        trial.end = {"began_at": began_at, "ended_at": began_at + held_s} | end

    async def _run(self, trial: KeeperTrial, placed: PlacedNodes) -> dict[str, Any]:
        work, first = trial.work, placed.actors[0]
        folder, limit_s = work["folder"], work["time_limit_s"]
        prepared = [actor.prepare.remote(folder, work["files"]) for actor in placed.actors]
        await asyncio.gather(*prepared)
        run = asyncio.ensure_future(
            _answer(
                first.run.remote(
                    folder,
                    nodes=placed.actors,
                    ranks=work["ranks"],
                    variables={"MASTER_ADDR": placed.master},
                    time_limit_s=limit_s,
                )
            )
        )
        overdue = time.monotonic() + limit_s + OVERDUE_S
        while not run.done():
            await self._take_log(trial, first)
            if time.monotonic() > overdue:
                run.cancel()
                return {"kind": "node", "reason": "its node did not end it at its time limit"}
        end = await run
        while await self._take_log(trial, first):
            pass
        trial.files = await first.left.remote(folder)
        await asyncio.gather(*[actor.clear.remote(folder) for actor in placed.actors])
        return {"kind": "script", "reason": "", **end}

    async def _take_log(self, trial: KeeperTrial, first: Any) -> int:
        part = await first.log.remote(trial.work["folder"], trial.logged)
        if part:
            trial.log.seek(0, os.SEEK_END)
            trial.log.write(part)
            trial.logged += len(part)
        return len(part)

    # Where trials run.

    async def _place(self, trial: KeeperTrial) -> PlacedNodes:
        self._waiting.append(trial)
        try:
            if free := self._free.get(trial.shape):
                return free.pop()
            self._give_back()  # of other shapes, which Ray needs
            while time.monotonic() - self._waiting[0].arrived > PATIENCE_S:
                if self._waiting[0] is trial:
                    break
                await asyncio.sleep(1)
            return await self._ask_for_nodes(trial)
        finally:
            self._waiting.remove(trial)

    async def _ask_for_nodes(self, trial: KeeperTrial) -> PlacedNodes:
        work = trial.work
        trial.reason = _why_it_waits(work["bundle"], work["nodes"], without=trial.excluded)
        elsewhere = {"ray.io/node-id": f"!in({','.join(trial.excluded)})"}
        group = placement_group(
            [work["bundle"]] * work["nodes"],
            strategy="STRICT_SPREAD",
            name=trial.name,
            bundle_label_selector=[elsewhere] * work["nodes"] if trial.excluded else None,
        )
        offered: asyncio.Future[PlacedNodes] = asyncio.get_running_loop().create_future()
        trial.offered = offered
        ready = asyncio.ensure_future(_answer(group.ready()))
        try:
            await asyncio.wait({ready, offered}, return_when=asyncio.FIRST_COMPLETED)
            trial.offered = None  # nodes that become free from now on are for others
            if offered.done():
                remove_placement_group(group)
                return offered.result()
            await ready
            return await _occupied(group, trial)
        except BaseException:
            remove_placement_group(group)
            if offered.done():
                self._release(offered.result(), healthy=True)
            raise
        finally:
            trial.offered = None
            ready.cancel()

    def _release(self, placed: PlacedNodes, *, healthy: bool) -> None:
        first = self._waiting[0] if self._waiting else None
        offered = first.offered if first and first.shape == placed.shape else None
        if healthy and offered and not offered.done():
            offered.set_result(placed)
        elif healthy and first is None:
            self._free.setdefault(placed.shape, []).append(placed)
            asyncio.get_running_loop().call_later(LINGER_S, self._give_back, placed)
        else:
            placed.remove()

    def _give_back(self, only: PlacedNodes | None = None) -> None:
        for free in self._free.values():
            for placed in list(free):
                if only is None or placed is only:
                    free.remove(placed)
                    placed.remove()

    async def _keep_up(self) -> None:
        while True:
            await asyncio.sleep(10)
            now = time.time()
            for name, trial in list(self._trials.items()):
                if trial.end and now - trial.end["ended_at"] > RETENTION_S:
                    del self._trials[name]
                    trial.log.close()
            if not self._trials and time.monotonic() - self._called > IDLE_S:
                ray.kill(ray.get_runtime_context().current_actor)


async def _answer(reference: Any) -> Any:
    return await reference


async def _occupied(group: PlacementGroup, trial: KeeperTrial) -> PlacedNodes:
    work = trial.work
    bundle = dict(work["bundle"])
    given = {"num_cpus": bundle.pop("CPU", 0), "num_gpus": bundle.pop("GPU", 0)}
    actors = [
        ray.remote(TrialNode)
        .options(
            **given,
            resources=bundle,
            max_concurrency=CALLS_AT_ONCE,
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=index
            ),
        )
        .remote()
        for index in range(work["nodes"])
    ]
    placed = PlacedNodes(group=group, shape=trial.shape, actors=actors)
    placed.nodes = list(await asyncio.gather(*[actor.where.remote() for actor in actors]))
    return placed


def fitting_nodes(bundle: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the living nodes with these resources, in use or not."""
    return [
        node
        for node in ray.nodes()
        if node["Alive"]
        and all(node["Resources"].get(kind, 0.0) >= count for kind, count in bundle.items())
    ]


def _why_it_waits(bundle: Mapping[str, float], nodes: int, *, without: Sequence[str]) -> str:
    wanted = " and ".join(f"{count:g} {kind}" for kind, count in bundle.items())
    fitting = fitting_nodes(bundle)
    there = sum(node["NodeID"] not in without for node in fitting)
    failed = f", besides {len(fitting) - there} that failed" if there < len(fitting) else ""
    if there < nodes:
        return f"it needs {nodes} nodes with {wanted} each, and Ray has {there}{failed}"
    return f"waiting for Ray to have {nodes} of {there} nodes free, with {wanted} each"


async def _end_of(task: asyncio.Task[dict[str, Any]], placed: PlacedNodes | None) -> dict[str, Any]:
    if task.cancelled():
        return {"kind": "cancelled", "reason": "cancelled"}
    error = task.exception()
    if error is None:
        return task.result()
    if isinstance(error, RayError):
        return await _blame(error, placed)
    reason = f"the actor that keeps it failed: {type(error).__name__}: {error}"
    return {"kind": "lost", "reason": reason}


async def _blame(error: RayError, placed: PlacedNodes | None) -> dict[str, str]:
    message = next(iter(str(error).strip().splitlines()[-1:]), "") or type(error).__name__
    if placed is None:
        return {"kind": "lost", "reason": f"Ray gave it no nodes: {message}"}
    if _LOW_ON_MEMORY in str(error):
        return {
            "kind": "memory",
            "reason": f"Ray ended it, as its node ran low on memory: {message}",
        }
    if isinstance(error, RayTaskError) and not isinstance(error, RayActorError):
        return {"kind": "node", "reason": f"its node could not run it: {message}"}
    until = time.monotonic() + BLAME_S
    while time.monotonic() < until:
        alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
        if dead := [node["host"] for node in placed.nodes if node["id"] not in alive]:
            return {"kind": "node", "reason": f"Ray lost one of its nodes ({', '.join(dead)})"}
        await asyncio.sleep(0.25)
    return {"kind": "lost", "reason": f"Ray lost one of its actors: {message}"}
