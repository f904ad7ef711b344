from __future__ import annotations

import errno
from pathlib import Path

import pytest

from autotune.schemas.choices import TrialState
from evaluators.cluster import ClusterProfile
from evaluators.local.backend import LocalBackend, LocalProgramBackend
from evaluators.trial import RUNNING, Backend, TrialOutcome
from tests.evaluators.adapter.samples import my_script
from tests.evaluators.local.trials import request, strategy
from tests.full_disk import full_disk
from tests.patience import until


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


def test_a_program_whose_disk_fills_up_is_lost_and_says_that(tmp_path: Path) -> None:
    profile = ClusterProfile(name="local", program="adapter", adapter=my_script(tmp_path))
    backend = LocalProgramBackend(profile)
    with full_disk(tmp_path / "full", inodes=4) as disk:
        trial = request(disk.folder / "trial", strategy(), ranks=1)
        backend.submit(trial)
        until(lambda: backend.poll([trial])[trial.token] is not RUNNING, "its end")
        outcome = backend.poll([trial])[trial.token]
        assert isinstance(outcome, TrialOutcome)
        assert outcome.status is TrialState.LOST
        told = "the disk was full (No space left on device): 0 of 0 MiB are free at"
        assert outcome.error == f"{told} {disk.folder}, and no more files can be made there"
    backend.close()
