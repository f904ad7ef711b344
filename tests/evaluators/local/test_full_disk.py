from __future__ import annotations

import errno
from pathlib import Path

import pytest

from evaluators.backend import Backend
from evaluators.cluster import ClusterProfile
from evaluators.local import LocalBackend
from evaluators.local.program_backend import LocalProgramBackend
from tests.evaluators.adapter.samples import my_script
from tests.evaluators.local.trials import request, strategy
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
