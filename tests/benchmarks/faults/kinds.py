"""What goes wrong: each kind is done to a stage, and is over when it returns."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.benchmarks.faults.programs import ENDED_WELL
from tests.benchmarks.faults.stage import LEASE_S, Stage

BALLAST = "ballast"
DISK = "disk full"
FARTHEST_STEP_S = 7200
SBATCH_LIMIT_S = 5.0
"""That one is waited for."""


@dataclass(frozen=True, kw_only=True)
class FaultKind:
    """`weight`: how often it is chosen, against the others. `backend`: whose campaigns alone it
    may harm; empty for all. `inflict` returns what it found wrong at once, in sentences."""

    name: str
    weight: int
    backend: str
    inflict: Callable[[Stage, random.Random], list[str]]


def kill_runner(stage: Stage, chance: random.Random) -> list[str]:
    runner = chance.choice(stage.runners)
    if not runner.lives:
        return []
    found = runner.kill()
    runner.start()
    return [f"a killed runner left {words}" for words in found]


def kill_service(stage: Stage, chance: random.Random) -> list[str]:  # noqa: ARG001
    found = stage.service.kill() if stage.service.lives else []
    stage.start_service()
    return [f"a killed service left {words}" for words in found]


def kill_all(stage: Stage, chance: random.Random) -> list[str]:  # noqa: ARG001
    found = [words for program in [*stage.runners, stage.service] for words in program.kill()]
    stage.start_service()
    for runner in stage.runners:
        runner.start()
    return [f"killed programs left {words}" for words in found]


def end_runner(stage: Stage, chance: random.Random) -> list[str]:
    runner = chance.choice(stage.runners)
    code = runner.stop()
    runner.start()
    return [] if code in ENDED_WELL else [f"a runner that was asked to end did so with {code}"]


def hang_runner(stage: Stage, chance: random.Random) -> list[str]:
    """For longer than its lease: on PostgreSQL another takes over, and then there are two."""
    chance.choice(stage.runners).hang(LEASE_S + chance.uniform(0.5, 2.0))
    return []


def hang_service(stage: Stage, chance: random.Random) -> list[str]:
    stage.service.hang(chance.uniform(0.2, 2.0))
    return []


def lose_database(stage: Stage, chance: random.Random) -> list[str]:
    """Restart PostgreSQL; hold SQLite's only lock, now and then for longer than anybody waits."""
    away_s = chance.choice([0.0, 0.5, 2.0, 7.0])
    if stage.postgres:
        stage.postgres.stop()
        time.sleep(away_s)
        stage.postgres.start()
        return []
    database = stage.settings.data_dir / "autotune.db"
    with closing(sqlite3.connect(database, isolation_level=None, timeout=30)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        time.sleep(away_s)
        connection.execute("ROLLBACK")
    return []


def restart_controller(stage: Stage, chance: random.Random) -> list[str]:
    assert stage.slurm
    stage.slurm.stop_controller()
    time.sleep(chance.uniform(0.0, 2.0))
    stage.slurm.start_controller()
    return []


def hang_controller(stage: Stage, chance: random.Random) -> list[str]:
    assert stage.slurm
    with stage.slurm.hanging_controller():
        time.sleep(chance.uniform(0.5, 4.0))
    return []


def kill_sbatch(stage: Stage, chance: random.Random) -> list[str]:  # noqa: ARG001
    """The first that is seen at work: its job may be there, or not."""
    ends = time.monotonic() + SBATCH_LIMIT_S
    while time.monotonic() < ends:
        for child in (child for runner in stage.runners for child in runner.beneath()):
            with suppress(psutil.Error):
                if child.name() == "sbatch":
                    child.kill()
                    return []
        time.sleep(0.002)
    return []


def lose_slurm_node(stage: Stage, chance: random.Random) -> list[str]:
    """One that most jobs get: Slurm gives the first ones out first."""
    assert stage.slurm
    node = chance.choice(stage.slurm.nodes[:4])
    stage.slurm.down(node)
    time.sleep(chance.uniform(0.0, 1.0))
    stage.slurm.resume(node)
    return []


def cancel_job(stage: Stage, chance: random.Random) -> list[str]:
    """As an administrator would; the allocation of a pilot is a job as well."""
    assert stage.slurm
    if jobs := sorted(stage.slurm.jobs()):
        stage.slurm.command("scancel", chance.choice(jobs), check=False)  # it may be over by now
    return []


def lose_ray_node(stage: Stage, chance: random.Random) -> list[str]:
    assert stage.ray
    stage.ray.kill_node()
    time.sleep(chance.uniform(0.0, 1.0))
    stage.ray.start()
    return []


def lose_ray(stage: Stage, chance: random.Random) -> list[str]:
    assert stage.ray
    stage.ray.kill_head()
    time.sleep(chance.uniform(0.0, 2.0))
    stage.ray.start()
    return []


def fill_disk(stage: Stage, chance: random.Random) -> list[str]:
    """The one of the trials, and on SQLite of the database; then make room."""
    ballast = stage.settings.data_dir / BALLAST
    try:
        _fill(ballast)
        time.sleep(chance.uniform(0.2, 2.0))
    finally:
        ballast.unlink(missing_ok=True)
    return []


def _fill(ballast: Path) -> None:
    with ballast.open("wb") as file:
        status = os.statvfs(ballast)
        room = status.f_bavail * status.f_frsize
        while room >= status.f_frsize:
            try:
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, room)
            except OSError:
                room //= 2


def step_clock(stage: Stage, chance: random.Random) -> list[str]:
    """There and, as often as not, back."""
    stage.clock.step(chance.choice([0, chance.randint(-FARTHEST_STEP_S, FARTHEST_STEP_S)]))
    return []


def kinds_for(stage: Stage) -> list[FaultKind]:
    """Return what can go wrong on this stage."""
    wanted: list[tuple[object, str, int, Callable[[Stage, random.Random], list[str]]]] = [
        (True, "runner killed", 5, kill_runner),
        (True, "service killed", 3, kill_service),
        (True, "service and runners killed", 2, kill_all),
        (True, "runner asked to end", 2, end_runner),
        (True, "runner stopped beyond its lease", 3, hang_runner),
        (True, "service stopped for a while", 1, hang_service),
        (True, f"{stage.database} {_LOSS[stage.database]}", 4, lose_database),
        (stage.small_disk, DISK, 3, fill_disk),
        (stage.clock.there, "clock stepped", 4, step_clock),
        (stage.slurm, "slurmctld restarted", 2, restart_controller),
        (stage.slurm, "slurmctld stopped for a while", 1, hang_controller),
        (stage.slurm, "sbatch killed", 1, kill_sbatch),
        (stage.slurm, "node of Slurm lost", 3, lose_slurm_node),
        (stage.slurm, "job cancelled by somebody else", 2, cancel_job),
        (stage.ray, "node of Ray killed", 2, lose_ray_node),
        (stage.ray, "head of Ray killed", 1, lose_ray),
    ]
    return [
        FaultKind(name=name, weight=weight, backend=_BACKENDS.get(inflict, ""), inflict=inflict)
        for there, name, weight, inflict in wanted
        if there
    ]


_BACKENDS: dict[Callable[[Stage, random.Random], list[str]], str] = {
    restart_controller: "slurm",
    hang_controller: "slurm",
    kill_sbatch: "slurm",
    lose_slurm_node: "slurm",
    cancel_job: "slurm",
    lose_ray_node: "ray",
    lose_ray: "ray",
}
_LOSS = {"sqlite": "locked", "postgresql": "restarted"}
