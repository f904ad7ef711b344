"""Which of several reasons for a failure counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.schemas.choices import TrialState
from evaluators.program.outcome import failure_of
from evaluators.training_log import Cause, CauseKind
from tests.evaluators.program.jobs import ended
from tests.full_disk import full_disk

MEMORY = Cause(error="CUDA out of memory", kind=CauseKind.OUT_OF_MEMORY, rank=3)
ERROR = Cause(error="ValueError: no", kind=CauseKind.ERROR)


def test_an_attempt_that_ended_well_did_not_fail_whatever_its_log_says(tmp_path: Path) -> None:
    assert failure_of(ended(0), ERROR, tmp_path) is None
    assert failure_of(ended(0), MEMORY, tmp_path) is None


@pytest.mark.parametrize(
    ("status", "told", "error"),
    [
        (None, TrialState.OOM, MEMORY.error),
        (TrialState.TIMEOUT, TrialState.OOM, MEMORY.error),
        (TrialState.OOM, TrialState.OOM, MEMORY.error),
        (TrialState.NODE_FAIL, TrialState.NODE_FAIL, "n03 is down"),
        (TrialState.CANCELLED, TrialState.CANCELLED, "n03 is down"),
    ],
)
def test_memory_that_ran_out_comes_before_what_followed_but_not_before_what_slurm_did(
    status: TrialState | None, told: TrialState, error: str, tmp_path: Path
) -> None:
    failure = failure_of(ended(1, status=status, reason="n03 is down"), MEMORY, tmp_path)
    assert failure
    assert (failure.status, failure.error) == (told, error)


def test_a_trial_that_hung_is_told_by_the_last_line_of_its_log(tmp_path: Path) -> None:
    hung = ended(124, status=TrialState.TIMEOUT, reason="over its time limit of 60 s")
    failure = failure_of(hung, ERROR, tmp_path)
    assert failure
    assert failure.error == "over its time limit of 60 s; its log is empty"
    (tmp_path / "trial.log").write_text(
        "Using /home/me/.cache/torch_extensions as PyTorch extensions root...\n"
        "[autotune power] n01 1700000000.5 92.0\n"
        "\n"
        "slurmstepd: error: *** STEP 7.0 ON n01 CANCELLED AT 2026-01-01T00:00:00 ***\n"
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
    )
    failure = failure_of(hung, ERROR, tmp_path)
    assert failure
    assert failure.status is TrialState.TIMEOUT
    assert failure.error == (
        "over its time limit of 60 s; its log ends with: "
        "Using /home/me/.cache/torch_extensions as PyTorch extensions root..."
    )


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (CauseKind.ERROR, TrialState.CRASHED),
        (CauseKind.CONSEQUENCE, TrialState.CRASHED),
        (CauseKind.TIME_LIMIT, TrialState.TIMEOUT),
        (CauseKind.NODE_FAILURE, TrialState.NODE_FAIL),
        (CauseKind.PREEMPTED, TrialState.PREEMPTED),
        (CauseKind.CANCELLED, TrialState.CANCELLED),
    ],
)
def test_the_log_decides_where_slurm_says_nothing(
    kind: CauseKind, status: TrialState, tmp_path: Path
) -> None:
    failure = failure_of(ended(1), Cause(error="words", kind=kind), tmp_path)
    assert failure
    assert (failure.status, failure.error) == (status, "words")


def test_a_job_that_could_not_be_set_up_says_why_itself(tmp_path: Path) -> None:
    said = "the cluster profile's environment.modules: rocm/9 does not load"
    (tmp_path / "trial.log").write_text(f"module: not found\nautotune: {said}\n")
    failure = failure_of(ended(78), Cause(error="not found", kind=CauseKind.ERROR), tmp_path)
    assert failure
    assert failure.error == said


@pytest.mark.parametrize(("code", "words"), [(3, "exit code 3"), (None, "no exit code")])
def test_a_silent_failure_is_told_by_its_exit_code(
    code: int | None, words: str, tmp_path: Path
) -> None:
    failure = failure_of(ended(code), None, tmp_path)
    assert failure
    assert failure.status is TrialState.CRASHED
    assert words in failure.error


def test_a_silent_failure_on_a_full_disk_is_no_fault_of_the_strategy(tmp_path: Path) -> None:
    """Not even where the trial's folder has gone with what lay in it."""
    with full_disk(tmp_path / "full", inodes=1) as disk:
        failure = failure_of(ended(1), None, disk.folder / "trial")
        assert failure
        assert failure.status is TrialState.LOST
        assert failure.error.startswith("it ended with exit code 1, and the disk was full (")
        disk.make_room()
        failure = failure_of(ended(1), None, disk.folder / "trial")
        assert failure
        assert failure.status is TrialState.CRASHED
