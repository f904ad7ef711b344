from __future__ import annotations

import pytest

from evaluators.training_log import Cause, CauseKind, LogReader
from evaluators.training_log.cause import plain
from evaluators.training_log.error_line import about_a_connection


def cause(*lines: str) -> Cause | None:
    reader = LogReader()
    reader.feed("".join(f"{line}\n" for line in lines).encode())
    return reader.finish().last.failure


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (
            "RuntimeError: [/x/pair.cc:534] Connection closed by peer [10.0.3.7]:41544",
            "RuntimeError: [/x/pair.cc:534] Connection closed by peer [fe80::1]:999",
        ),
        ("ValueError: tensor on cuda:3 of rank 12", "ValueError: tensor on cuda:0 of rank 4"),
        ("OSError: process 4711 (pid: 12) at 0x7f00", "OSError: process 8 (pid: 9) at 0x7fff0"),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 1",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 7 has 3",
        ),
        (
            "[rank1]:[E514 12:00:00.12 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught a hang",
            "[rank9]:[E514 13:01:30.99 ProcessGroupNCCL.cpp:616] [Rank 9] Watchdog caught a hang",
        ),
        (
            "slurmstepd: error: *** STEP 4711.0 ON n01 CANCELLED AT 2024-05-01T12:00:00 ***",
            "slurmstepd-n07: error: *** STEP 9.1 ON n07 CANCELLED AT 2025-06-02T13:10:00 ***",
        ),
        (
            "/var/spool/slurmd/job4711/slurm_script: line 12: module: command not found",
            "/var/spool/slurmd/job8/slurm_script: line 12: module: command not found",
        ),
        (
            "[2024-05-01 12:00:00,123] [ERROR] the run of 2024-05-01 12:00:00 has no data",
            "[2025-06-02 13:10:00,456] [ERROR] the run of 2025-06-02 13:10:00 has no data",
        ),
    ],
)
def test_the_same_cause_reads_the_same_on_every_rank_and_in_every_run(
    here: str, there: str
) -> None:
    first, second = cause(here), cause(f"7: {there}")
    assert first is not None
    assert second is not None
    assert first.error == second.error
    assert first.kind is second.kind


def test_an_error_that_differs_reads_differently() -> None:
    assert plain("KeyError: 'tokens'") != plain("KeyError: 'labels'")
    assert plain("ValueError: 2048 is not 4096") == "ValueError: 2048 is not 4096"


def test_a_long_error_is_cut() -> None:
    root = cause("ValueError: " + "x" * 10_000)
    assert root is not None
    assert len(root.error) == 500


def test_a_time_at_the_beginning_is_no_rank() -> None:
    root = cause("12:34:56 ERROR the data is not there", "12:35:00 ERROR nothing to do")
    assert root == Cause(error="the data is not there", kind=CauseKind.ERROR, rank=None)


def test_a_port_in_use_is_no_consequence_though_it_is_about_a_socket() -> None:
    assert about_a_connection("RuntimeError: the server socket has failed to listen")
    assert not about_a_connection("RuntimeError: the server socket: Address already in use")


@pytest.mark.parametrize(
    "line",
    [
        "0 errors",
        "Traceback (most recent call last):",
        "UserWarning: out of memory is not out of reach",
        "set PYTORCH_CUDA_ALLOC_CONF to avoid running out of memory",
        "[INFO] RuntimeError handlers installed",
        "Exception hierarchy loaded",
        "model.ErrorHead: 3 layers",
        "srun: Job step created",
        "loading /data/Killed.json",
    ],
)
def test_what_only_mentions_errors_is_none(line: str) -> None:
    assert cause(line) is None


def test_the_weights_of_errors() -> None:
    lines = {
        CauseKind.CONSEQUENCE: "RuntimeError: Broken pipe",
        CauseKind.ERROR: "ValueError: x",
        CauseKind.OUT_OF_MEMORY: "RuntimeError: HIP error: out of memory",
    }
    before: list[str] = []
    for kind, line in lines.items():
        before.append(line)
        root = cause(*before)
        assert root is not None
        assert root.kind is kind
        assert root.out_of_memory is (kind is CauseKind.OUT_OF_MEMORY)


def test_a_traceback_that_broke_off_is_forgotten() -> None:
    lines = ["Traceback (most recent call last):", '  File "x.py", line 1, in f', *["step"] * 300]
    assert cause(*lines, "queue.Empty") is None
    assert cause(*lines[:100], "queue.Empty") is not None


def test_an_exception_that_says_less_than_the_one_before_does_not_hide_it() -> None:
    chain = "During handling of the above exception, another exception occurred:"
    root = cause("KeyError: 'x'", chain, "RuntimeError: Broken pipe", "ValueError: later")
    assert root is not None
    assert root.error == "KeyError: 'x'"
