from __future__ import annotations

import pytest

from evaluators.training_log import Cause, CauseKind, LogReader
from evaluators.training_log.cause import plain
from evaluators.training_log.error_line import about_a_connection


def cause(*lines: str) -> Cause | None:
    reader = LogReader()
    reader.feed("".join(f"{line}\n" for line in lines).encode())
    return reader.finish().failure


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
def test_the_same_cause_reads_the_same_on_all_ranks_and_runs(here: str, there: str) -> None:
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


def test_a_port_in_use_is_a_cause_though_about_a_socket() -> None:
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
        CauseKind.HARDWARE: "RuntimeError: HIP error: uncorrectable ECC error encountered",
    }
    before: list[str] = []
    for kind, line in lines.items():
        before.append(line)
        root = cause(*before)
        assert root is not None
        assert root.kind is kind


def test_a_traceback_that_broke_off_is_forgotten() -> None:
    lines = ["Traceback (most recent call last):", '  File "x.py", line 1, in f', *["step"] * 300]
    assert cause(*lines, "queue.Empty") is None
    assert cause(*lines[:100], "queue.Empty") is not None


def test_a_less_telling_exception_does_not_hide_the_one_before() -> None:
    chain = "During handling of the above exception, another exception occurred:"
    root = cause("KeyError: 'x'", chain, "RuntimeError: Broken pipe", "ValueError: later")
    assert root is not None
    assert root.error == "KeyError: 'x'"


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "torch.AcceleratorError: CUDA error: uncorrectable NVLink error detected during the "
        "execution",
        "[rank3]:[E ProcessGroupNCCL.cpp:616] [PG 0 Rank 3] Process group watchdog thread "
        "terminated with exception: CUDA error: uncorrectable ECC error encountered",
        "n07:812:1406 [3] enqueue.cc:1199 NCCL WARN Cuda failure 'uncorrectable ECC error "
        "encountered'",
        "pynvml.NVMLError_GpuIsLost: GPU is lost",
        "RuntimeError: CUDA error: device is lost",
        "Unable to determine the device handle for GPU0: GPU is lost. Reboot the system",
        "NVRM: GPU at PCI:0000:1a:00: GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:3b:00): 48, pid=812, name=python, DBE (double bit error)",
        "NVRM: Xid (PCI:0000:3b:00): 74, pid='<unknown>', NVLink: fatal error detected on link 3",
        "n07:812:1406 [3] NCCL WARN NET/IB : Got completion from peer 10.0.0.9<4> with status=12",
        "n07:812:1406 [3] NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0",
        "n07:812:1406 [3] NCCL WARN NET/IB: Got completion from peer 10.0.0.9<4> with "
        "status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0)",
        "n07:812:1406 [3] NCCL WARN NET/IB : mlx5_0:1 Got async event : port error",
    ],
)
def test_faults_of_the_hardware_are_known_by_their_words(line: str) -> None:
    root = cause(line)
    assert root is not None
    assert root.kind is CauseKind.HARDWARE


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:3b:00): 31, pid=812, name=python, MMU Fault",
        "NVRM: Xid (PCI:0000:3b:00): 43, pid=812, name=python, Ch 00000008",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: DeepEP error: timeout (dispatch CPU)",
        "[rank1]:[E514 12:00:00.12 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught a timeout",
        "n07:812:1406 [3] NCCL WARN NET/IB : Got completion with error 5, opcode 1, len 0",
        "    Uncorrectable ECC Errors : 0",
    ],
)
def test_what_a_program_can_do_itself_is_no_fault_of_hardware(line: str) -> None:
    root = cause(line)
    assert root is None or root.kind is not CauseKind.HARDWARE


@pytest.mark.parametrize(
    ("line", "host"),
    [
        ("n07:812:1406 [3] NCCL WARN NET/IB : Got completion with error 12, opcode 1", "n07"),
        (
            "[rank3]: gpu-1.a.b:8:14 [3] NCCL WARN NET/IB : Got async event : port error",
            "gpu-1.a.b",
        ),
        ("Aug  2 04:11:52 n07 kernel: NVRM: Xid (PCI:0000:1a:00): 79, pid=1", "n07"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", ""),
    ],
)
def test_the_node_that_a_line_names(line: str, host: str) -> None:
    root = cause(line)
    assert root is not None
    assert root.host == host
