"""What a service with campaigns of 2,000 trials costs its machine, and how fast it answers many.

    python tests/benchmarks/service_load.py [--trials N] [--clients N] [--viewers N] [--seconds S]
                                            [--json OUT]
    python tests/benchmarks/service_load.py --minutes N [--rate R] [--viewers N] ...

A real service of its own on this machine, with two simulated campaigns in a database that goes when
it ends. First the processor time of the service for a view, with one client: as it stands, after
the progress of a trial, and after the end of one, beside that of `/healthz`, which works out
nothing. Then 50 clients at once, each asking anew as soon as it has its answer. Then as many
viewers as `--viewers` says, each with an open stream of one campaign's events, of which two come in
a second, beside ten clients that ask five times a second: the service's share of a core, its
memory, and how long events are under way.

With `--minutes` it is another load, and goes on: viewers come and stay for a minute each, ten
clients ask as often as `--rate` says, trials move and end, and each minute a campaign comes. Then
the memory of the service is compared with what it was once the load had settled.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

from server.settings import Settings
from tests.benchmarks.load.connection import (
    SETTLED_MIN,
    VIEWS,
    Connection,
    Memory,
    SteadyLoad,
    ended,
    waited,
)
from tests.benchmarks.load.scene import Scene, serving

PEER = "/healthz"
REPEATS = 100
CHANGES = 5
WARM_UP = 3

MOST_CPU_MS = {"page": 60.0, "recommendation": 15.0, "chart": 40.0}
MOST_WAIT_S = 0.3
"""p99 of each view with many clients at once."""
MOST_WAIT_BESIDE_VIEWERS_S = 0.5
MOST_CORES = 1.0
MOST_MEMORY_MB = 250.0
MOST_GROWTH = 0.05

EVENT_EVERY_S = 0.5
ASKING = 10
ASK_EVERY_S = 0.2
START_LIMIT_S = 60.0
LATEST_EVENT_S = 60.0
"""After this long, an event that has not reached a viewer is lost."""


@dataclass
class Load:
    """A service under load, and what is found of it.

    Attributes:
        campaigns: their ids.
        found: figure -> value; times in the unit that its name ends with.
    """

    url: str
    service: psutil.Process
    campaigns: Sequence[int]
    found: dict[str, float] = field(default_factory=dict)

    def cpu_s(self) -> float:
        times = self.service.cpu_times()
        return float(times.user + times.system)

    def memory_mb(self) -> float:
        return float(self.service.memory_info().rss) / 1e6

    async def view_ms(self, connection: Connection, path: str, *, repeats: int = REPEATS) -> float:
        """Return the processor time of the service for a view, in the mean."""
        for _ in range(WARM_UP):
            await connection.ask(path)
        before = self.cpu_s()
        for _ in range(repeats):
            await connection.ask(path)
        return 1e3 * (self.cpu_s() - before) / repeats

    async def changed_ms(
        self, connection: Connection, path: str, *, change: Callable[[], object]
    ) -> float:
        """Return the same for the first view after a change."""
        spent = 0.0
        for _ in range(CHANGES):
            await asyncio.to_thread(change)
            before = self.cpu_s()
            await connection.ask(path)
            spent += self.cpu_s() - before
        return 1e3 * spent / CHANGES

    async def one_client(self, scene: Scene) -> None:
        async with Connection.open(self.url) as connection:
            peer = self.found["health_cpu_ms"] = await self.view_ms(connection, PEER)
            print(f"one client             CPU, ms   of {PEER}   progress   an end   kB sent")
            print(f"  {PEER:<20} {peer:7.2f}")
            for name, address in VIEWS.items():
                path = address.format(self.campaigns[0])
                again = self.found[f"{name}_cpu_ms"] = await self.view_ms(connection, path)
                moved = await self.changed_ms(connection, path, change=scene.event)
                ended = await self.changed_ms(connection, path, change=scene.end)
                self.found |= {f"{name}_moved_cpu_ms": moved, f"{name}_ended_cpu_ms": ended}
                size = len(await connection.ask(path)) / 1e3
                told = verdict(again, MOST_CPU_MS.get(name), "ms")
                print(
                    f"  {name:<20} {again:7.2f} {again / peer:12.1f} {moved:10.1f} {ended:8.1f}"
                    f" {size:9.1f}   {told}"
                )

    async def every_view(self) -> None:
        """Ask for each once: what is worked out for the first who asks is told above."""
        async with Connection.open(self.url) as connection:
            for campaign in self.campaigns:
                for address in VIEWS.values():
                    await connection.ask(address.format(campaign))

    async def many_clients(self, *, clients: int, seconds: float) -> None:
        waits: dict[str, list[float]] = {name: [] for name in VIEWS}
        await self.every_view()
        ends = time.monotonic() + seconds

        async def client(number: int) -> None:
            names = itertools.islice(itertools.cycle(VIEWS), number, None)
            campaign = self.campaigns[number % len(self.campaigns)]
            async with Connection.open(self.url) as connection:
                for name in names:
                    if time.monotonic() > ends:
                        return
                    waits[name].append(await waited(connection, VIEWS[name].format(campaign)))

        before = self.cpu_s()
        await asyncio.gather(*(client(number) for number in range(clients)))
        answers = sum(map(len, waits.values()))
        cores = (self.cpu_s() - before) / seconds
        print(f"\n{clients} clients at once: {answers / seconds:.0f} answers/s, {cores:.2f} cores")
        self.tell(waits, most_s=MOST_WAIT_S, kind="clients")

    def tell(self, waits: dict[str, list[float]], *, most_s: float, kind: str) -> None:
        for name, each in waits.items():
            p50, p99 = np.percentile(each, [50, 99])
            self.found[f"{name}_{kind}_p50_s"] = float(p50)
            self.found[f"{name}_{kind}_p99_s"] = float(p99)
            told = verdict(float(p99), most_s, "s")
            print(f"  {name:<20} p50 {p50:.3f} s, p99 {p99:.3f} s   {told}")

    async def viewers(self, scene: Scene, *, viewers: int, seconds: float) -> None:
        audience = Audience(self.url, self.campaigns)
        after = scene.last
        memory_before = self.memory_mb()
        watching = [
            asyncio.create_task(audience.watch(scene.campaign.id, after)) for _ in range(viewers)
        ]
        await asyncio.wait_for(audience.all_there(viewers), START_LIMIT_S)
        watching += [asyncio.create_task(audience.ask(number)) for number in range(ASKING)]
        before, began = self.cpu_s(), time.monotonic()
        written: dict[int, float] = {}
        while time.monotonic() < began + seconds:
            written[await asyncio.to_thread(scene.event)] = time.monotonic()
            await asyncio.sleep(EVENT_EVERY_S)
        cores = (self.cpu_s() - before) / (time.monotonic() - began)
        memory = self.memory_mb()
        await audience.all_told(written, viewers)
        await ended(watching)
        late = audience.late(written)
        self.found |= {"viewers_cores": cores, "viewers_memory_mb": memory, "events_p99_s": late}
        print(f"\n{viewers} viewers, {1 / EVENT_EVERY_S:.0f} events/s, all of them received by all")
        print(f"  cores {cores:.2f}   {verdict(cores, MOST_CORES, '')}")
        told = verdict(memory, MOST_MEMORY_MB, "MB")
        print(f"  memory {memory:.0f} MB, {memory_before:.0f} before they came   {told}")
        print(f"  events are under way for p99 {late:.2f} s")
        self.tell(audience.waits, most_s=MOST_WAIT_BESIDE_VIEWERS_S, kind="beside_viewers")

    async def steady(self, scene: Scene, given: argparse.Namespace) -> None:
        load = SteadyLoad(self.url, scene, viewers=given.viewers, rate=given.rate)
        memory = Memory(self.service)
        before, began = self.cpu_s(), time.monotonic()
        await load.run(memory, minutes=given.minutes)
        cores = (self.cpu_s() - before) / (time.monotonic() - began)
        growth = memory.growth()
        self.found |= {"steady_cores": cores, "steady_growth": growth}
        print(f"\n{given.minutes} min, {given.viewers} viewers, {load.answers} answers")
        print(f"  cores {cores:.2f}")
        told = verdict(100 * growth, 100 * MOST_GROWTH, "%")
        print(f"  memory grew by {100 * growth:.1f} % after {SETTLED_MIN:g} min   {told}")


class Audience:
    """Viewers of events, and clients that ask beside them.

    Attributes:
        waits: seconds of each answer, by view.
        arrivals: when each viewer had an event, by its id.
    """

    def __init__(self, url: str, campaigns: Sequence[int]) -> None:
        self._url = url
        self._campaigns = campaigns
        self._there = asyncio.Semaphore(0)
        self.waits: dict[str, list[float]] = {name: [] for name in VIEWS}
        self.arrivals: dict[int, list[float]] = {}

    async def all_there(self, viewers: int) -> None:
        for _ in range(viewers):
            await self._there.acquire()

    async def all_told(self, events: Iterable[int], viewers: int) -> None:
        """Return once every event has reached every viewer; raises TimeoutError for lost ones."""
        async with asyncio.timeout(LATEST_EVENT_S):
            while any(len(self.arrivals.get(event, ())) < viewers for event in events):
                await asyncio.sleep(EVENT_EVERY_S)

    async def watch(self, campaign: int, after: int) -> None:
        async with Connection.open(self._url) as connection:
            await connection.send(f"/api/v1/campaigns/{campaign}/events?after={after}")
            await connection.head()
            self._there.release()
            while line := await connection.line():
                if line.startswith(b"id: "):
                    self.arrivals.setdefault(int(line[4:]), []).append(time.monotonic())

    async def ask(self, number: int) -> None:
        campaign = self._campaigns[number % len(self._campaigns)]
        async with Connection.open(self._url) as connection:
            for name in itertools.islice(itertools.cycle(VIEWS), number, None):
                self.waits[name].append(await waited(connection, VIEWS[name].format(campaign)))
                await asyncio.sleep(ASK_EVERY_S)

    def late(self, written: Mapping[int, float]) -> float:
        """Return the p99 of the seconds from an event to each who sees it."""
        under_way = [at - began for event, began in written.items() for at in self.arrivals[event]]
        return float(np.percentile(under_way, 99))


def verdict(value: float, most: float | None, unit: str) -> str:
    """Return the bar and whether it holds; empty where there is none."""
    if most is None:
        return ""
    return f"at most {most:g} {unit}".rstrip() + ("" if value <= most else ": OVER")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=2000, metavar="N")
    parser.add_argument("--clients", type=int, default=50, metavar="N")
    parser.add_argument("--viewers", type=int, default=200, metavar="N", help="0 for none")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="of each part")
    parser.add_argument("--minutes", type=int, metavar="N", help="of a load that goes on")
    parser.add_argument("--rate", type=float, default=20.0, metavar="R", help="its answers/s")
    parser.add_argument("--json", type=Path, metavar="OUT")
    given = parser.parse_args()
    if given.minutes is not None and given.minutes <= SETTLED_MIN:
        parser.error(f"memory is compared after {SETTLED_MIN:g} minutes: --minutes must be more")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # which ends the service, too
    with tempfile.TemporaryDirectory() as folder:
        data_dir = Path(folder)
        scene = Scene(Settings(data_dir=data_dir), trials=given.trials)
        with serving(data_dir) as (url, service):
            load = Load(url=url, service=service, campaigns=scene.ids)
            if given.minutes:
                asyncio.run(load.steady(scene, given))
            else:
                asyncio.run(load.one_client(scene))
                asyncio.run(load.many_clients(clients=given.clients, seconds=given.seconds))
                if given.viewers:
                    asyncio.run(load.viewers(scene, viewers=given.viewers, seconds=given.seconds))
    if given.json:
        given.json.write_text(json.dumps(load.found, indent=2) + "\n")


if __name__ == "__main__":
    main()
