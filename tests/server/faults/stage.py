"""A service with its runners, its database and its clusters, all on this machine."""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self, TypeVar
from uuid import uuid4

import httpx2
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from autotune.schemas.campaigns import Campaign
from autotune.schemas.trials import Trial
from server.settings import Settings
from server.store import Store
from server.store.campaigns import get_campaign
from server.store.events import last_event_id
from server.store.tables import CampaignRow
from server.store.trials import all_trials
from tests.cluster.cluster import Cluster, lacking
from tests.cluster.daemons import clean_environment
from tests.evaluators.program.checkout import make_checkout
from tests.ray_nodes import RayNodes
from tests.server import postgres
from tests.server.faults import questions
from tests.server.faults.programs import (
    MARK,
    Nursery,
    Program,
    ServiceRecord,
    SteppedClock,
)

DISK_MB = 512
ASK_LIMIT_S = 20.0
PATIENCE_S = 180.0
"""That a database or a service has to be back."""

Question = Callable[[random.Random], dict[str, Any]]
Found = TypeVar("Found")


class Stage:
    """All that faults happen to. It ends what it started, and only that.

    Args:
        ray: a cluster that others have as well; None where this machine has no Ray.

    Attributes:
        absent: what this machine lacks of it, in words.
        asks: a question for each backend that is there.
        runners: one on SQLite, two on PostgreSQL.
        small_disk: whether the data folder is a file system of its own that can be filled.
    """

    def __init__(self, *, database: str, seed: int, ray: RayNodes | None) -> None:
        self.mark = uuid4().hex
        self.seed = seed
        self.database = database
        self.absent: list[str] = []
        self.asks: dict[str, Question] = {
            "simulated": questions.simulated,
            "local": questions.local,
        }
        self.runners: list[Program] = []
        self.postgres: postgres.PostgresServer | None = None
        self.slurm: Cluster | None = None
        self.ray = ray
        self.small_disk = False
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as ends:
            self._ends = ends
            self._build()
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.close()

    def _build(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="autotune-endurance-"))
        self._ends.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self._make_disk()
        self.clock = SteppedClock(self.folder)
        if not self.clock.there:
            self.absent.append("a C compiler (no steps of the clock)")
        checkout = make_checkout(self.folder / "Megatron-DeepSpeed")
        scratch = self.folder / "scratch"
        scratch.mkdir()
        profiles = self.folder / "profiles"
        questions.write_profile(profiles, checkout=checkout, scratch=scratch)
        adapters = self.folder / "adapters"
        questions.write_adapter(adapters)
        self._make_machines()
        self.settings = Settings(
            data_dir=self.folder / "disk" / "data",
            database_url=self._make_database(),
            profiles_dir=profiles,
            adapters_dir=adapters,
            port=0,
        )
        self.store = Store(self.settings.url)
        self._ends.callback(self.store.close)
        self.store.upgrade()
        nursery = Nursery(self._environment())
        self._ends.callback(nursery.close)
        self.service = self._program(["server.cli", "serve", "--no-runner"], nursery, "serve")
        for number in range(1 if self.database == "sqlite" else 2):
            self.runners.append(
                self._program(["tests.server.faults.quick_runner"], nursery, f"runner-{number}")
            )
        self.start_service()
        for runner in self.runners:
            runner.start()

    def _make_disk(self) -> None:
        disk = self.folder / "disk"
        disk.mkdir()
        options = ["-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(disk)]
        mounted = subprocess.run(["mount", *options], capture_output=True, check=False)
        self.small_disk = mounted.returncode == 0
        if self.small_disk:
            self._ends.callback(subprocess.run, ["umount", "-l", str(disk)], check=True)
        else:
            self.absent.append("the right to mount a file system (no full disk)")

    def _make_machines(self) -> None:
        if missing := lacking():
            self.absent.append(f"{', '.join(missing)} (no Slurm)")
        else:
            self.slurm = self._ends.enter_context(Cluster())
            self.asks["slurm"] = questions.slurm
        if self.ray:
            self.asks["ray"] = self._ask_of_ray
        else:
            self.absent.append("ray (no Ray)")

    def _ask_of_ray(self, chance: random.Random) -> dict[str, Any]:
        assert self.ray
        return questions.ray(chance, self.ray.address)

    def _make_database(self) -> str:
        if self.database == "sqlite":
            return ""
        # What is committed is to outlive the server, and not only this machine.
        self.postgres = postgres.PostgresServer(synchronous_commit="on")
        self._ends.callback(self.postgres.close)
        self.postgres.start()
        return self.postgres.url

    def _environment(self) -> Mapping[str, str]:
        own = {
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
            "AUTOTUNE_CONFIG": "/nowhere",
            MARK: self.mark,
        }
        there = self.slurm.environment if self.slurm else {}
        return {
            **clean_environment(),
            **self.settings.environment(),
            **self.clock.environment,
            **there,
            **own,
        }

    def _program(self, words: list[str], nursery: Nursery, name: str) -> Program:
        program = Program(words=words, log=self.folder / f"{name}.log", nursery=nursery)
        self._ends.callback(lambda: program.kill() if program.lives else None)
        return program

    # The service, and what it knows.

    def start_service(self) -> None:
        """Start it until it is there: a full disk or a database that is away may end it."""
        ends = time.monotonic() + PATIENCE_S
        while True:
            self.service.start()
            record = ServiceRecord.wait_for(self.service, self.settings)
            if record:
                self._record = record
                return
            assert time.monotonic() < ends, self.last_words(self.service)
            if self.service.lives:
                self.service.kill()

    def keep_up(self) -> None:
        """Start what has ended by itself; a supervisor would."""
        if not self.service.lives:
            self.start_service()
        for runner in self.runners:
            if not runner.lives:
                runner.start()

    def last_words(self, program: Program) -> str:
        return "\n".join(program.log.read_text(errors="replace").splitlines()[-20:])

    def post(self, path: str, body: Any = None, *, key: str = "") -> httpx2.Response | None:
        """Return the answer; None where there was none."""
        headers = {"Authorization": f"Bearer {self._record.token}"}
        if key:
            headers["Idempotency-Key"] = key
        try:
            return httpx2.post(
                f"{self._record.url}/api/v1{path}",
                json=body,
                headers=headers,
                trust_env=False,
                timeout=ASK_LIMIT_S,
            )
        except httpx2.HTTPError:
            return None

    def campaign(self, number: int) -> Campaign:
        return self._read(lambda: self._campaign(number))

    def trials(self, number: int) -> list[Trial]:
        return self._read(lambda: self._trials(number))

    def last_event(self) -> int:
        return self._read(self._last_event)

    def campaign_ids(self) -> list[int]:
        with self.store.session() as session:
            return list(session.scalars(select(CampaignRow.id).order_by(CampaignRow.id)))

    def _campaign(self, number: int) -> Campaign:
        with self.store.session() as session:
            return get_campaign(session, number)

    def _trials(self, number: int) -> list[Trial]:
        with self.store.session() as session:
            return all_trials(session, number)

    def _last_event(self) -> int:
        with self.store.session() as session:
            return last_event_id(session)

    def _read(self, read: Callable[[], Found]) -> Found:
        ends = time.monotonic() + PATIENCE_S
        while True:
            try:
                return read()
            except DBAPIError:
                if time.monotonic() > ends:
                    raise
                time.sleep(0.1)
