"""A trial that the disk has no room for waits, and runs once there is some."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.schemas.choices import TrialState
from tests.cluster.cluster import Cluster
from tests.evaluators.slurm.pilot.scene import pilot, requests
from tests.evaluators.slurm.trials import Backends, finish, request, run, standing
from tests.full_disk import full_disk
from tests.patience import until

ROOMLESS = "its folder cannot be written: "


@pytest.mark.xdist_group("slurm")
def test_a_trial_waits_for_room_before_it_is_submitted(backends: Backends, tmp_path: Path) -> None:
    backend = backends.make()
    with full_disk(tmp_path / "full") as disk:
        trial = request(disk.folder)
        backend.submit(trial)
        until(lambda: standing(backend, trial).reason == f"{ROOMLESS}No space left on device")
        disk.make_room()
        assert finish(backend, trial)[0].status is TrialState.OK


@pytest.mark.xdist_group("slurm-pilot")
def test_a_step_waits_for_room_before_it_is_started(slurm: Cluster, tmp_path: Path) -> None:
    with full_disk(tmp_path / "full", inodes=1000) as disk, pilot("echo 0.25 >result") as backend:
        disk.make_room()
        first, second = requests(disk.folder, 1, 1)
        run(backend, first)
        disk.fill()
        backend.submit(second)
        until(lambda: standing(backend, second).reason.startswith(ROOMLESS))
        disk.make_room()
        assert finish(backend, second)[0].status is TrialState.OK
    assert len(slurm.jobs()) == 1
