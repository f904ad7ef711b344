from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from evaluators.cluster.profile import RayCluster
from evaluators.ray.backend import RayBackend
from evaluators.trial import read_result
from tests.evaluators.slurm.trials import PROFILE, QUICK, Lines, request, standing
from tests.full_disk import full_disk
from tests.patience import until


def test_a_trial_waits_for_room_on_the_disk(tmp_path: Path) -> None:
    """No Ray is needed for it: its files are written before it is asked for anything."""
    profile = replace(PROFILE, ray=RayCluster(address="127.0.0.1:1"))
    backend = RayBackend(profile, program=Lines(text=QUICK))
    with full_disk(tmp_path / "full") as disk:
        trial = request(disk.folder)
        backend.submit(trial)
        until(lambda: "No space left" in standing(backend, trial).reason)
        disk.make_room()
        until(lambda: standing(backend, trial).reason.startswith("Ray does not answer"))
        backend.close()
        assert read_result(trial.directory) is None
