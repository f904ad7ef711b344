"""Which of several reasons for a failure counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.schemas.choices import TrialState
from evaluators.program.outcome import failure_of
from evaluators.training_log import Cause, CauseKind
from tests.evaluators.program.jobs import ended
from tests.full_disk import full_disk

MEMORY = Cause(error="CUDA out of memory", kind=CauseKind.OUT_OF_MEMORY, rank=3)
HOST_MEMORY = Cause(error="Slurm killed a task", kind=CauseKind.HOST_MEMORY)
ERROR = Cause(error="ValueError: no", kind=CauseKind.ERROR)


def test_an_attempt_that_ended_well_is_ok_whatever_its_log_says(tmp_path: Path) -> None:
    assert failure_of(ended(0), ERROR, tmp_path) is None
    assert failure_of(ended(0), MEMORY, tmp_path) is None


@pytest.mark.parametrize(
    ("status", "state", "error"),
    [
        (None, TrialState.OOM, MEMORY.error),
        (TrialState.TIMEOUT, TrialState.OOM, MEMORY.error),
        (TrialState.OOM, TrialState.OOM, MEMORY.error),
        (TrialState.NODE_FAIL, TrialState.NODE_FAIL, "n03 is down"),
        (TrialState.CANCELLED, TrialState.CANCELLED, "n03 is down"),
    ],
)
def test_out_of_memory_outranks_what_followed_but_not_slurm(
    status: TrialState | None, state: TrialState, error: str, tmp_path: Path
) -> None:
    failure = failure_of(ended(1, status=status, reason="n03 is down"), MEMORY, tmp_path)
    assert failure
    assert (failure.status, failure.error) == (state, error)


@pytest.mark.parametrize("cause", [None, HOST_MEMORY])
@pytest.mark.parametrize(("on_cpu", "state"), [(False, TrialState.CRASHED), (True, TrialState.OOM)])
def test_the_hosts_memory_is_that_of_the_layout_only_on_a_cpu(
    cause: Cause | None, on_cpu: bool, state: TrialState, tmp_path: Path
) -> None:
    killed = replace(ended(1, status=TrialState.OOM, reason="Slurm ended it"), memory="60 MB")
    failure = failure_of(killed, cause, tmp_path, on_cpu=on_cpu)
    assert failure
    assert (failure.status, failure.error) == (state, "Slurm ended it; the job had 60 MB")


def test_out_of_memory_by_slurms_log_is_reported_with_its_size(tmp_path: Path) -> None:
    failure = failure_of(replace(ended(1), memory="60 MB"), HOST_MEMORY, tmp_path)
    assert failure
    assert failure.error == "Slurm killed a task; the job had 60 MB"


def test_a_faulty_gpu_may_leave_the_others_waiting(tmp_path: Path) -> None:
    fault = Cause(error="uncorrectable ECC error", kind=CauseKind.HARDWARE)
    hung = ended(124, status=TrialState.TIMEOUT, reason="over its time limit of 60 s")
    failure = failure_of(hung, fault, tmp_path)
    assert failure
    assert (failure.status, failure.error) == (TrialState.NODE_FAIL, fault.error)


def test_the_error_of_a_hung_trial_has_the_last_line_of_its_log(tmp_path: Path) -> None:
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
        (CauseKind.HARDWARE, TrialState.NODE_FAIL),
        (CauseKind.HOST_MEMORY, TrialState.CRASHED),
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
    reason = "the cluster profile's environment.modules: rocm/9 does not load"
    (tmp_path / "trial.log").write_text(f"module: not found\nautotune: {reason}\n")
    failure = failure_of(ended(78), Cause(error="not found", kind=CauseKind.ERROR), tmp_path)
    assert failure
    assert failure.error == reason


@pytest.mark.parametrize(("code", "words"), [(3, "exit code 3"), (None, "no exit code")])
def test_a_silent_failure_is_reported_by_its_exit_code(
    code: int | None, words: str, tmp_path: Path
) -> None:
    failure = failure_of(ended(code), None, tmp_path)
    assert failure
    assert failure.status is TrialState.CRASHED
    assert words in failure.error


def test_a_silent_failure_on_a_full_disk_is_not_the_strategys(tmp_path: Path) -> None:
    """Not even where the trial's folder has gone with what lay in it."""
    with full_disk(tmp_path / "full", inodes=1) as disk:
        failure = failure_of(ended(1), None, disk.folder / "trial")
        assert failure
        assert failure.status is TrialState.LOST
        assert failure.error.startswith("it ended with exit code 1; the disk was full (")
        disk.make_room()
        failure = failure_of(ended(1), None, disk.folder / "trial")
        assert failure
        assert failure.status is TrialState.CRASHED
