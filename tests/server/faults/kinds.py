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

from tests.server.faults.programs import ENDED_WELL
from tests.server.faults.quick_runner import LEASE_S
from tests.server.faults.stage import Stage

BALLAST = "ballast"
DISK = "disk full"
FARTHEST_STEP_S = 7200
SBATCH_LIMIT_S = 5.0
"""That one is waited for."""


Inflict = Callable[[Stage, random.Random], list[str] | None]
"""Does it to a stage; may return what it found wrong at once, in sentences."""


@dataclass(frozen=True, kw_only=True)
class FaultKind:
    """`weight`: how often it is chosen, against the others. `backend`: whose campaigns alone it
    may harm; empty for all. `inflict` returns what it found wrong at once, in sentences."""

    name: str
    weight: int
    backend: str
    inflict: Inflict


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


def hang_runner(stage: Stage, chance: random.Random) -> None:
    """For longer than its lease: on PostgreSQL another takes over, and then there are two."""
    chance.choice(stage.runners).hang(LEASE_S + chance.uniform(0.5, 2.0))


def hang_service(stage: Stage, chance: random.Random) -> None:
    stage.service.hang(chance.uniform(0.2, 2.0))


def lose_database(stage: Stage, chance: random.Random) -> None:
    """Restart PostgreSQL; hold SQLite's only lock, now and then for longer than anybody waits."""
    away_s = chance.choice([0.0, 0.5, 2.0, 7.0])
    if stage.postgres:
        stage.postgres.stop()
        time.sleep(away_s)
        stage.postgres.start()
        return
    database = stage.settings.data_dir / "autotune.db"
    with closing(sqlite3.connect(database, isolation_level=None, timeout=30)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        time.sleep(away_s)
        connection.execute("ROLLBACK")


def restart_controller(stage: Stage, chance: random.Random) -> None:
    assert stage.slurm
    stage.slurm.stop_controller()
    time.sleep(chance.uniform(0.0, 2.0))
    stage.slurm.start_controller()


def hang_controller(stage: Stage, chance: random.Random) -> None:
    assert stage.slurm
    with stage.slurm.hanging_controller():
        time.sleep(chance.uniform(0.5, 4.0))


def kill_sbatch(stage: Stage, chance: random.Random) -> None:  # noqa: ARG001
    """The first that is seen at work: its job may be there, or not."""
    ends = time.monotonic() + SBATCH_LIMIT_S
    while time.monotonic() < ends:
        for child in (child for runner in stage.runners for child in runner.beneath()):
            with suppress(psutil.Error):
                if child.name() == "sbatch":
                    child.kill()
                    return
        time.sleep(0.002)


def lose_slurm_node(stage: Stage, chance: random.Random) -> None:
    """One that most jobs get: Slurm gives the first ones out first."""
    assert stage.slurm
    node = chance.choice(stage.slurm.nodes[:4])
    stage.slurm.down(node)
    time.sleep(chance.uniform(0.0, 1.0))
    stage.slurm.resume(node)


def cancel_job(stage: Stage, chance: random.Random) -> None:
    """As an administrator would; the allocation of a pilot is a job as well."""
    assert stage.slurm
    if jobs := sorted(stage.slurm.jobs()):
        stage.slurm.command("scancel", chance.choice(jobs), check=False)  # it may be over by now


def lose_ray_node(stage: Stage, chance: random.Random) -> None:
    assert stage.ray
    stage.ray.kill_node()
    time.sleep(chance.uniform(0.0, 1.0))
    stage.ray.start()


def lose_ray(stage: Stage, chance: random.Random) -> None:
    assert stage.ray
    stage.ray.kill_head()
    time.sleep(chance.uniform(0.0, 2.0))
    stage.ray.start()


def fill_disk(stage: Stage, chance: random.Random) -> None:
    """The one of the trials, and on SQLite of the database; then make room."""
    ballast = stage.settings.data_dir / BALLAST
    try:
        _fill(ballast)
        time.sleep(chance.uniform(0.2, 2.0))
    finally:
        ballast.unlink(missing_ok=True)


def _fill(ballast: Path) -> None:
    with ballast.open("wb") as file:
        status = os.statvfs(ballast)
        room = status.f_bavail * status.f_frsize
        while room >= status.f_frsize:
            try:
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, room)
            except OSError:
                room //= 2


def step_clock(stage: Stage, chance: random.Random) -> None:
    """There and, as often as not, back."""
    stage.clock.step(chance.choice([0, chance.randint(-FARTHEST_STEP_S, FARTHEST_STEP_S)]))


def kinds_for(stage: Stage) -> list[FaultKind]:
    """Return what can go wrong on this stage."""
    loss = {"sqlite": "locked", "postgresql": "restarted"}[stage.database]
    wanted: list[tuple[object, str, int, str, Inflict]] = [
        (True, "runner killed", 5, "", kill_runner),
        (True, "service killed", 3, "", kill_service),
        (True, "service and runners killed", 2, "", kill_all),
        (True, "runner asked to end", 2, "", end_runner),
        (True, "runner stopped beyond its lease", 3, "", hang_runner),
        (True, "service stopped for a while", 1, "", hang_service),
        (True, f"{stage.database} {loss}", 4, "", lose_database),
        (stage.small_disk, DISK, 3, "", fill_disk),
        (stage.clock.there, "clock stepped", 4, "", step_clock),
        (stage.slurm, "slurmctld restarted", 2, "slurm", restart_controller),
        (stage.slurm, "slurmctld stopped for a while", 1, "slurm", hang_controller),
        (stage.slurm, "sbatch killed", 1, "slurm", kill_sbatch),
        (stage.slurm, "node of Slurm lost", 3, "slurm", lose_slurm_node),
        (stage.slurm, "job cancelled by somebody else", 2, "slurm", cancel_job),
        (stage.ray, "node of Ray killed", 2, "ray", lose_ray_node),
        (stage.ray, "head of Ray killed", 1, "ray", lose_ray),
    ]
    return [
        FaultKind(name=name, weight=weight, backend=backend, inflict=inflict)
        for there, name, weight, backend, inflict in wanted
        if there
    ]
