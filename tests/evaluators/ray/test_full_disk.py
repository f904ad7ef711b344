from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from evaluators.cluster.profile import RayCluster
from evaluators.ray.backend import RayBackend
from evaluators.trial_files import read_result
from tests.evaluators.slurm.trials import PROFILE, QUICK, Lines, request, standing, wait
from tests.requirement import require


def mount(folder: Path, options: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that holds a folder and no more."""
    folder = tmp_path / "full"
    folder.mkdir()
    mounted = os.geteuid() == 0 and mount(folder, "size=64k,nr_inodes=2")
    require(mounted, "right to mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_trial_waits_for_room_on_the_disk(full_disk: Path) -> None:
    """No Ray is needed for it: its files are written before it is asked for anything."""
    profile = replace(PROFILE, ray=RayCluster(address="127.0.0.1:1"))
    backend, trial = RayBackend(profile, program=Lines(text=QUICK)), request(full_disk)
    backend.submit(trial)
    wait(lambda: "No space left" in standing(backend, trial).reason)
    mount(full_disk, "remount,size=8m,nr_inodes=1000")
    wait(lambda: standing(backend, trial).reason.startswith("Ray does not answer"))
    backend.close()
    assert read_result(trial.directory) is None
