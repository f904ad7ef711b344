from __future__ import annotations

import errno
from pathlib import Path

import pytest

from autotune.schemas import TrialState
from evaluators.backend import Backend
from evaluators.cluster import ClusterProfile
from evaluators.local import LocalBackend
from evaluators.local.program_backend import LocalProgramBackend
from evaluators.trial import TrialOutcome
from tests.evaluators.adapter.samples import my_script
from tests.evaluators.local.trials import request, strategy, until
from tests.full_disk import full_disk


@pytest.mark.parametrize("bundled", [True, False])
def test_a_trial_that_there_is_no_room_for_is_left_to_the_caller(
    tmp_path: Path, bundled: bool
) -> None:
    """It has not crashed, and is as if it had never been submitted."""
    profile = ClusterProfile(name="local", program="adapter", adapter=my_script(tmp_path))
    backend: Backend = LocalBackend() if bundled else LocalProgramBackend(profile)
    with full_disk(tmp_path / "full", inodes=1) as disk:
        trial = request(disk.folder / "trial", strategy(), ranks=1)
        with pytest.raises(OSError, match="No space left") as refused:
            backend.submit(trial)
        assert refused.value.errno == errno.ENOSPC
        assert backend.poll([trial]) == {}
    backend.close()


def _is_lost(backend: Backend, folder: Path, *, inodes: int) -> None:
    """Check the end of a trial whose disk takes so many files and folders, its own included."""
    with full_disk(folder, inodes=inodes):
        trial = request(folder / "trial", strategy(), ranks=1)
        backend.submit(trial)
        found: list[TrialOutcome] = []

        def ended() -> bool:
            now = backend.poll([trial])[trial.token]
            found.extend([now] if isinstance(now, TrialOutcome) else [])
            return bool(found)

        until(ended, "the outcome")
    assert found[0].status is TrialState.LOST
    told = "the disk was full (No space left on device): 0 of 0 MiB are free at"
    assert found[0].error == f"{told} {folder}, and no more files can be made there"


def test_a_program_whose_disk_fills_up_is_lost_and_says_that(tmp_path: Path) -> None:
    profile = ClusterProfile(name="local", program="adapter", adapter=my_script(tmp_path))
    backend = LocalProgramBackend(profile)
    _is_lost(backend, tmp_path / "full", inodes=4)
    backend.close()


def test_a_trial_whose_disk_fills_up_is_lost_and_says_that(
    backend: LocalBackend, tmp_path: Path
) -> None:
    _is_lost(backend, tmp_path / "full", inodes=2)
