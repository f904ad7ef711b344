"""Clients of a service under load, as light as they can be, and modest load that goes on: what the
service's memory does meanwhile."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import psutil

from autotune.client.known_services import record_of
from tests.benchmarks.load.scene import Scene

VIEWS = {
    "page": "/campaigns/{}",
    "recommendation": "/api/v1/campaigns/{}/recommendation",
    "chart": "/api/v1/campaigns/{}/figures/trajectory.vega.json",
    "trials": "/api/v1/campaigns/{}/trials",
    "campaign": "/api/v1/campaigns/{}",
}


class Connection:
    """One client's connection, kept open as a browser keeps it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._token = token

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[Connection]:
        address = urlsplit(url)
        record = record_of(url)
        assert record is not None, url
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            yield cls(reader, writer, record.token)
        finally:
            writer.close()

    async def ask(self, path: str, *, method: str = "GET") -> bytes:
        """Return the answer's body as it came, compressed; raises AssertionError for a refusal."""
        await self.send(path, method=method)
        headers = await self.head()
        return await self._reader.readexactly(int(headers.get("content-length", 0)))

    async def send(self, path: str, *, method: str = "GET") -> None:
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Accept-Encoding: gzip"]
        lines += [f"Authorization: Bearer {self._token}"]
        lines += ["Content-Length: 0"] if method == "POST" else []
        self._writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        await self._writer.drain()

    async def head(self) -> dict[str, str]:
        status, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        assert status.split()[1] == "200", status
        pairs = (line.partition(": ") for line in lines if line)
        return {name.lower(): value for name, _, value in pairs}

    async def line(self) -> bytes:
        """Return the next line of a stream."""
        return await self._reader.readline()


async def waited(connection: Connection, path: str) -> float:
    """Return the seconds until an answer has come."""
    began = time.monotonic()
    await connection.ask(path)
    return time.monotonic() - began


async def ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    """End tasks that go on for ever; raises what one of them ended of."""
    for task in tasks:
        task.cancel()
    for error in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(error, Exception):
            raise error


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
