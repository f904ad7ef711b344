"""What a service with campaigns of 2,000 trials costs its machine, and how fast it answers many.

    python tests/benchmarks/service_load.py [--trials N] [--clients N] [--viewers N] [--seconds S]
                                            [--json OUT]

A real service of its own on this machine, with two simulated campaigns in a database that goes when
it ends. First the processor time of the service for a view, with one client: as it stands, after
the progress of a trial, and after the end of one. Then `--clients` at once, each asking anew as
soon as it has its answer. Then ten clients that ask five times a second, while `--viewers` have an
open stream of one campaign's events, of which two come in a second. Every figure stands against
that of `/healthz` in the same run, which computes nothing.
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
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import psutil

from autotune.client.known_services import record_of
from autotune.search import ended_of
from server.campaign.best import BestSoFar
from server.runner.belief import CampaignSnapshot, SearchBelief
from server.runner.trial_ends import OutcomeNotes
from server.settings import Settings
from server.store.events import last_event_id
from server.store.outcomes import BEST
from server.store.trials import all_trials, finish_trial
from tests.server.dashboard.campaigns import Campaigns
from tests.serving import serving

PEER = "healthz"
VIEWS = {
    PEER: "/healthz",
    "page": "/campaigns/{}",
    "recommendation": "/api/v1/campaigns/{}/recommendation",
    "chart": "/api/v1/campaigns/{}/figures/trajectory.vega.json",
    "trials": "/api/v1/campaigns/{}/trials",
    "campaign": "/api/v1/campaigns/{}",
}
REPEATS, CHANGES = 100, 5
EVENT_EVERY_S = 0.5
ASKING, ASK_EVERY_S = 10, 0.2
LATEST_EVENT_S = 60.0
"""After this long, an event that has not reached a viewer is lost."""


class Scene:
    """Two campaigns, and a trial that goes from node to node, which is an event each time."""

    def __init__(self, settings: Settings, *, trials: int) -> None:
        self._made = Campaigns(settings)
        self.campaign = self._made.many(trials)
        self.ids = [self.campaign.id, self._made.many(trials).id]
        self._strategies = self._made.strategies(self.campaign, 1, fitting=True)
        self._trial = self._made.start(self.campaign, self._strategies)[0]
        self._moves = itertools.count()

    @property
    def last_event(self) -> int:
        with self._made.store.session() as session:
            return last_event_id(session)

    def move(self) -> None:
        self._made.stand([self._trial], phase="running", host=f"node{next(self._moves)}")

    def end(self) -> None:
        """End a trial, and store the best and the outcome, as a runner does."""
        made, campaign = self._made, self.campaign
        (trial,) = made.start(campaign, self._strategies)
        (result,) = made.simulate(campaign, [trial])
        with made.store.transaction() as session:
            finish_trial(session, trial, result)
            trials = all_trials(session, campaign.id)
            best = BestSoFar.of(campaign, trials)
            BEST.write(session, campaign.id, best, ended=len(ended_of(trials)))
        snapshot = CampaignSnapshot.read(made.store, campaign.id, newest=self.last_event)
        belief = SearchBelief(made.store, lambda: snapshot)
        OutcomeNotes(made.store).keep(snapshot, belief, at_once=True)


class Connection:
    """One client's connection, kept open as a browser keeps it, and as light as it can be."""

    def __init__(self, url: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter):
        record = record_of(url)
        assert record is not None, url
        self._token, self.reader, self._writer = record.token, reader, writer

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[Connection]:
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            yield cls(url, reader, writer)
        finally:
            writer.close()

    async def begin(self, path: str) -> int:
        """Ask; return the length of the body that follows."""
        lines = [f"GET {path} HTTP/1.1", "Host: localhost", "Accept-Encoding: gzip"]
        lines += [f"Authorization: Bearer {self._token}"]
        self._writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        status, *heads = (await self.reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        assert status.split()[1] == "200", status
        pairs = dict(line.lower().split(": ", 1) for line in heads if line)
        return int(pairs.get("content-length", 0))

    async def ask(self, path: str) -> float:
        """Return the seconds until the whole answer has come."""
        began = time.monotonic()
        await self.reader.readexactly(await self.begin(path))
        return time.monotonic() - began


@dataclass
class Load:
    """A service under load; `found` are its figures, in the unit that each name ends with."""

    url: str
    service: psutil.Process
    scene: Scene
    found: dict[str, float] = field(default_factory=dict)

    def cpu_s(self) -> float:
        times = self.service.cpu_times()
        return float(times.user + times.system)

    async def one_client(self) -> None:
        print(f"{'CPU, ms':16} {'cached':>8} {'of peer':>8} {'progress':>9} {'an end':>8}")
        for name, path in self._paths(0):
            async with Connection.open(self.url) as connection:
                await connection.ask(path)
                before = self.cpu_s()
                for _ in range(REPEATS):
                    await connection.ask(path)
                cached = 1e3 * (self.cpu_s() - before) / REPEATS
            moved = await self._changed_ms(path, self.scene.move)
            ended = await self._changed_ms(path, self.scene.end)
            figures = {"cpu_ms": cached, "moved_cpu_ms": moved, "ended_cpu_ms": ended}
            self.found |= {f"{name}_{what}": value for what, value in figures.items()}
            ratio = cached / self.found[f"{PEER}_cpu_ms"]
            print(f"{name:16} {cached:8.2f} {ratio:8.1f} {moved:9.1f} {ended:8.1f}", flush=True)

    async def _changed_ms(self, path: str, change: Callable[[], None]) -> float:
        spent = 0.0
        for _ in range(CHANGES):
            await asyncio.to_thread(change)
            async with Connection.open(self.url) as connection:  # an idle one may be closed
                before = self.cpu_s()
                await connection.ask(path)
                spent += self.cpu_s() - before
        return 1e3 * spent / CHANGES

    def _paths(self, number: int) -> list[tuple[str, str]]:
        campaign = self.scene.ids[number % len(self.scene.ids)]
        return [(name, address.format(campaign)) for name, address in VIEWS.items()]

    async def many_clients(
        self, title: str, *, clients: int, seconds: float, pause_s: float = 0.0
    ) -> None:
        """Print p50 and p99 of each view, and how many times the peer's they are."""
        waits: dict[str, list[float]] = {name: [] for name in VIEWS}
        ends = time.monotonic() + seconds

        async def client(number: int) -> None:
            async with Connection.open(self.url) as connection:
                for name, path in itertools.islice(
                    itertools.cycle(self._paths(number)), number, None
                ):
                    if time.monotonic() > ends:
                        return
                    waits[name].append(await connection.ask(path))
                    await asyncio.sleep(pause_s)

        before = self.cpu_s()
        await asyncio.gather(*map(client, range(clients)))
        cores = (self.cpu_s() - before) / seconds
        answers = sum(map(len, waits.values())) / seconds
        memory_mb = self.service.memory_info().rss / 1e6
        print(f"\n{title}: {answers:.0f} answers/s, {cores:.2f} cores, {memory_mb:.0f} MB")
        peer = np.percentile(waits[PEER], [50, 99])
        for name, each in waits.items():
            times = np.percentile(each, [50, 99])
            self.found |= {f"{title}, {name}_p50_s": times[0], f"{title}, {name}_p99_s": times[1]}
            p50, p99 = (f"{s:.3f} s ({s / of:.1f} x)" for s, of in zip(times, peer, strict=True))
            print(f"  {name:16} p50 {p50:>18}   p99 {p99:>18}")

    async def viewers(self, *, viewers: int, seconds: float) -> None:
        first, there = self.scene.last_event, asyncio.Semaphore(0)
        arrivals: dict[int, list[float]] = {}

        async def watch() -> None:
            path = f"/api/v1/campaigns/{self.scene.campaign.id}/events?after={first}"
            async with Connection.open(self.url) as connection:
                await connection.begin(path)
                there.release()
                while line := await connection.reader.readline():
                    if line.startswith(b"id: "):
                        arrivals.setdefault(int(line[4:]), []).append(time.monotonic())

        async with asyncio.TaskGroup() as group:
            watching = [group.create_task(watch()) for _ in range(viewers)]
            for _ in watching:
                await there.acquire()
            title = f"{ASKING} clients beside {viewers} viewers"
            asking = group.create_task(
                self.many_clients(title, clients=ASKING, seconds=seconds, pause_s=ASK_EVERY_S)
            )
            written: dict[int, float] = {}
            while not asking.done():
                await asyncio.to_thread(self.scene.move)
                written[self.scene.last_event] = time.monotonic()
                await asyncio.sleep(EVENT_EVERY_S)
            async with asyncio.timeout(LATEST_EVENT_S):
                while any(len(arrivals.get(event, ())) < viewers for event in written):
                    await asyncio.sleep(EVENT_EVERY_S)
            for task in watching:
                task.cancel()
        late = [at - began for event, began in written.items() for at in arrivals[event]]
        self.found["events_p99_s"] = float(np.percentile(late, 99))
        print(f"  all {len(written)} events reached all, p99 {self.found['events_p99_s']:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=2000, metavar="N")
    parser.add_argument("--clients", type=int, default=50, metavar="N")
    parser.add_argument("--viewers", type=int, default=200, metavar="N", help="0 for none")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="of each part")
    parser.add_argument("--json", type=Path, metavar="OUT")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # which ends the service, too
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(Settings(data_dir=Path(folder)), trials=given.trials)
        with serving(Path(folder), "--no-runner") as served:
            service = psutil.Process(served.process.pid)
            load = Load(url=served.url, service=service, scene=scene)
            asyncio.run(load.one_client())
            title = f"{given.clients} clients at once"
            asyncio.run(load.many_clients(title, clients=given.clients, seconds=given.seconds))
            if given.viewers:
                asyncio.run(load.viewers(viewers=given.viewers, seconds=given.seconds))
    if given.json:
        given.json.write_text(json.dumps(load.found, indent=2) + "\n")


if __name__ == "__main__":
    main()
