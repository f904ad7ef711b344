"""Modest load that goes on: what the service's memory does meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import psutil

from tests.benchmarks.load.connection import VIEWS, Connection, ended
from tests.benchmarks.load.scene import Scene

SETTLED_MIN = 10.0
"""After so long, whatever is kept for all who ask is filled, and every part has been used."""
CLIENTS = 10
ANSWERS_OF_A_CONNECTION = 100
STREAM_LIFE_S = 60.0
EVENT_EVERY_S = 5.0
END_EVERY_S = 60.0
CAMPAIGN_EVERY_S = 60.0
NEW_TRIALS = 50
LATEST = 3
"""Of the campaigns that come, so many are asked for beside the two that are large."""
WINDOW = 3
"""Minutes whose mean is compared."""
OTHERS = ("/", "/api/v1/campaigns", "/api/v1/activity", "/metrics", "/healthz")


@dataclass
class Memory:
    """Of a service, minute by minute.

    Attributes:
        rss_mb: all that it holds, with pages of libraries that other processes may hold as well.
        uss_mb: what would be free without it.
    """

    service: psutil.Process
    rss_mb: list[float] = field(default_factory=list)
    uss_mb: list[float] = field(default_factory=list)

    def note(self) -> None:
        held = self.service.memory_full_info()
        self.rss_mb.append(held.rss / 1e6)
        self.uss_mb.append(held.uss / 1e6)

    def growth(self) -> float:
        """Return by which share of itself it has grown since the load had settled, 0.05 for five
        per cent: the mean of the last minutes against that of the first."""
        settled = self.rss_mb[int(SETTLED_MIN) :]
        window = min(WINDOW, len(settled))
        return sum(settled[-window:]) / sum(settled[:window]) - 1


class SteadyLoad:
    """Viewers that come and go, clients that ask so many times a second in all, trials that move
    and end, and new campaigns.

    Args:
        rate: answers a second.
    """

    def __init__(self, url: str, scene: Scene, *, viewers: int, rate: float) -> None:
        self._url = url
        self._scene = scene
        self._viewers = viewers
        self._rate = rate
        self._latest: deque[int] = deque(maxlen=LATEST)
        self.answers = 0

    async def run(self, memory: Memory, *, minutes: int) -> None:
        """Load the service for so long, and note its memory at the end of each minute."""
        running = [asyncio.create_task(self._watch(number)) for number in range(self._viewers)]
        running += [asyncio.create_task(self._ask()) for _ in range(CLIENTS)]
        running += [asyncio.create_task(self._happen())]
        began = time.monotonic()
        for minute in range(minutes):
            await asyncio.sleep(began + 60 * (minute + 1) - time.monotonic())
            failed = [task for task in running if task.done()]
            if failed:
                break
            memory.note()
            print(
                f"  {minute + 1:3d} min  {memory.rss_mb[-1]:6.1f} MB, of its own"
                f" {memory.uss_mb[-1]:6.1f} MB, {self.answers} answers",
                flush=True,
            )
        await ended(running)

    def _paths(self) -> Iterator[str]:
        chosen = random.Random(1)
        while True:
            campaign = chosen.choice([*self._scene.ids, *self._latest])
            yield chosen.choice([*VIEWS.values(), *OTHERS]).format(campaign)

    async def _ask(self) -> None:
        paths = self._paths()
        while True:
            async with Connection.open(self._url) as connection:
                for path in itertools.islice(paths, ANSWERS_OF_A_CONNECTION):
                    await connection.ask(path)
                    self.answers += 1
                    await asyncio.sleep(CLIENTS / self._rate)

    async def _watch(self, number: int) -> None:
        await asyncio.sleep(STREAM_LIFE_S * number / self._viewers)
        while True:
            async with Connection.open(self._url) as connection:
                campaign, after = self._scene.campaign.id, self._scene.last
                await connection.send(f"/api/v1/campaigns/{campaign}/events?after={after}")
                await connection.head()
                try:
                    async with asyncio.timeout(STREAM_LIFE_S):
                        while await connection.line():
                            pass
                except TimeoutError:
                    pass

    async def _happen(self) -> None:
        """Let trials move and end, and campaigns come."""
        for moves in itertools.count(1):
            await asyncio.sleep(EVENT_EVERY_S)
            await asyncio.to_thread(self._scene.event)
            if moves % round(END_EVERY_S / EVENT_EVERY_S) == 0:
                await asyncio.to_thread(self._scene.end)
            if moves % round(CAMPAIGN_EVERY_S / EVENT_EVERY_S) == 0:
                self._latest.append(await asyncio.to_thread(self._scene.another, NEW_TRIALS))
