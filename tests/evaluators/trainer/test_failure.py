from __future__ import annotations

import signal

import pytest

from autotune.schemas.choices import TrialState
from evaluators.trainer.failure import RankFailure, ended_by, error_line, root_cause

CLOSED = "RuntimeError: Connection closed by peer [127.0.0.1]:4242"
ALLOCATOR = (
    "RuntimeError: [enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate "
    "memory: you tried to allocate 2147483648 bytes. Error code 12 (Cannot allocate memory)"
)


def failure(error: str, *, rank: int = 0, at: float = 0.0) -> RankFailure:
    return RankFailure(rank=rank, error=error, at=at)


def test_the_cause_is_the_first_error_not_about_a_connection() -> None:
    failures = [
        failure(CLOSED, at=1),
        failure("ValueError: b", rank=2, at=3),
        failure("x: a", at=4),
    ]
    assert root_cause(failures).rank == 2
    assert root_cause(failures[:1]).error == CLOSED


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ALLOCATOR, TrialState.OOM),
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB", TrialState.OOM),
        ("RuntimeError: HIP out of memory.", TrialState.OOM),
        ("MemoryError: ", TrialState.OOM),
        ("RuntimeError: std::bad_alloc", TrialState.OOM),
        ("ValueError: x", TrialState.CRASHED),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", TrialState.NODE_FAIL),
    ],
)
def test_a_failure_is_known_by_its_words(error: str, status: TrialState) -> None:
    assert failure(error).status(on_cpu=True) is status
    assert not failure(error).consequence
    assert failure(CLOSED).consequence


@pytest.mark.parametrize("error", [ALLOCATOR, "MemoryError: ", "RuntimeError: std::bad_alloc"])
def test_the_hosts_memory_is_not_that_of_a_gpu(error: str) -> None:
    assert failure(error).status(on_cpu=False) is TrialState.CRASHED


def test_a_fault_of_the_hardware_has_nowhere_else_to_go() -> None:
    sentence = failure("RuntimeError: CUDA error: uncorrectable ECC error encountered").sentence()
    assert sentence.endswith(
        "(a fault of the hardware, not of the layout; this machine has no other node to try)"
    )


def test_a_signal_is_named() -> None:
    killed = ended_by(3, -signal.SIGKILL, last_words="", at=0)
    assert "SIGKILL" in killed.error
    assert killed.status(on_cpu=True) is TrialState.CRASHED
    aborted = ended_by(0, -signal.SIGABRT, last_words="what():  std::bad_alloc", at=0)
    assert aborted.status(on_cpu=True) is TrialState.OOM
    silent = ended_by(0, 7, last_words="", at=0)
    assert "exited with 7" in silent.error
    assert not silent.signalled


def test_out_of_memory_comes_first_without_torchs_source_line() -> None:
    full = failure(error_line(RuntimeError(ALLOCATOR.removeprefix("RuntimeError: "))), rank=3)
    assert full.sentence().startswith("out of memory on rank 3: RuntimeError: DefaultCPUAllocator")
    assert "2147483648 bytes" in full.sentence()
    assert failure("ValueError: x", rank=3).sentence() == "rank 3: ValueError: x"


def test_an_error_is_one_line_without_its_stack() -> None:
    error = RuntimeError("first\nsecond\nException raised from x at y\nframe #0: z")
    assert error_line(error) == "RuntimeError: first second"
