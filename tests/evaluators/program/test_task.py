"""The script that every task runs under, in a real bash."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from evaluators.program import task
from evaluators.program.program import Launcher
from evaluators.program.task import FIRST_PORT, LOCKS, PORTS, RENDEZVOUS
from tests.cluster import Cluster
from tests.patience import PATIENCE_S

# What nvidia-smi 535 prints for two GPUs of which the second tells nothing, and what rocm-smi of
# ROCm 5 and 6 prints for one MI250X (two GCDs) and for two MI300X.
NVIDIA = "65.12\n[N/A]\n70.50\n"
MI250X = """
======================= ROCm System Management Interface =======================
============================= Power Consumption ================================
GPU[0]\t\t: Average Graphics Package Power (W): 92.0
GPU[1]\t\t: Average Graphics Package Power (W): N/A (Secondary die)
================================================================================
============================= End of ROCm SMI Log ==============================
"""
MI300X = """WARNING: AMD GPU device(s) is/are in a low-power state.

GPU[0]\t\t: Average Graphics Package Power (W): 139.0
GPU[0]\t\t: Current Socket Graphics Package Power (W): 141.0
GPU[1]\t\t: Current Socket Graphics Package Power (W): 139.5
"""
ROCM_3 = "GPU[0] \t\t: Power: 30.0 W\nGPU[1] \t\t: Power: 31.0 W\n"


def tool(folder: Path, name: str, prints: str) -> None:
    """A stand-in for what this machine lacks."""
    (folder / "output").write_text(prints)
    (folder / name).write_text(
        f'#!/bin/bash\necho queried >>"{folder}/queries"\ncat "{folder}/output"\n'
    )
    (folder / name).chmod(0o755)


def start(folder: Path, *command: str, path: str = "", **variables: str) -> subprocess.Popen[str]:
    script = folder / task.SCRIPT_NAME
    script.write_text(task.SCRIPT)
    slurm = {"SLURM_PROCID": "5", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1"}
    slurm |= {"SLURMD_NODENAME": "n07", "PATH": f"{path}:/usr/bin:/bin"}
    return subprocess.Popen(
        ["bash", str(script), *command],
        env=slurm | variables,
        stdout=subprocess.PIPE,
        text=True,
    )


def printed(process: subprocess.Popen[str]) -> list[str]:
    out, _ = process.communicate(timeout=PATIENCE_S)
    return out.splitlines()


@pytest.mark.parametrize(
    ("variables", "local_rank"),
    [
        ({}, 1),
        ({"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, 1),
        ({"CUDA_VISIBLE_DEVICES": "3"}, 0),
        ({"ROCR_VISIBLE_DEVICES": "2", "CUDA_VISIBLE_DEVICES": "0,1"}, 0),
        ({"ZE_AFFINITY_MASK": "1.0"}, 0),
    ],
    ids=str,
)
def test_a_task_is_the_rank_that_slurm_made_it(
    tmp_path: Path, variables: dict[str, str], local_rank: int
) -> None:
    run = start(tmp_path, "bash", "-c", "echo $RANK $WORLD_SIZE $LOCAL_RANK", **variables)
    assert printed(run) == [f"5 8 {local_rank}"]


@pytest.mark.parametrize("tasks", ["4", "4(x16)", "4(x2),3"])
def test_a_task_knows_how_many_share_its_node(tmp_path: Path, tasks: str) -> None:
    allocation = {"SLURM_TASKS_PER_NODE": "8(x2)", "SLURM_STEP_TASKS_PER_NODE": tasks}
    run = start(tmp_path, "bash", "-c", "echo $LOCAL_SIZE", **allocation)
    assert printed(run) == ["4"]


def test_a_task_keeps_its_words_and_its_exit_code(tmp_path: Path) -> None:
    run = start(tmp_path, "bash", "-c", 'printf "%s|" "$@"; exit 3', "it", "a b", "$HOME", "'")
    assert printed(run) == ["a b|$HOME|'|"]
    assert run.returncode == 3


def test_a_task_finds_what_lies_beside_its_interpreter_first(tmp_path: Path) -> None:
    """Megatron compiles its helpers with the `python3` that it finds."""
    (tmp_path / "python3").write_text("#!/bin/sh\necho its own\n")
    (tmp_path / "trainer").write_text("#!/bin/sh\npython3\n")
    for name in ("python3", "trainer"):
        (tmp_path / name).chmod(0o755)
    assert printed(start(tmp_path, str(tmp_path / "trainer"))) == ["its own"]


def test_it_is_started_by_the_launcher() -> None:
    launcher = Launcher(srun=("srun", "--nodes=2"), container=("apptainer", "exec", "a b.sif"))
    line = task.as_ranks(launcher, Path("/trials/a b"), "python", '"$X"')
    assert (
        line == "srun --nodes=2 apptainer exec 'a b.sif' bash '/trials/a b/task.sh' python \"$X\""
    )


@pytest.mark.parametrize(
    ("name", "prints", "watts"),
    [
        ("nvidia-smi", NVIDIA, "135.6"),
        ("rocm-smi", MI250X, "92.0"),
        ("rocm-smi", MI300X, "280.5"),
        ("rocm-smi", ROCM_3, "61.0"),
    ],
    ids=["nvidia", "mi250x", "mi300x", "rocm3"],
)
def test_power_of_all_gpus_is_logged(tmp_path: Path, name: str, prints: str, watts: str) -> None:
    before = time.time()
    for line in sampled(tmp_path, name, prints, lines=1):
        assert line[:3] == ["[autotune", "power]", "n07"]
        assert before - 1 <= float(line[3]) <= time.time()
        assert line[4] == watts


def test_power_is_logged_each_second(tmp_path: Path) -> None:
    first, second, *_ = sampled(tmp_path, "nvidia-smi", NVIDIA, lines=2)
    assert float(second[3]) - float(first[3]) >= 1


def sampled(folder: Path, name: str, prints: str, *, lines: int) -> list[list[str]]:
    """The words of each line that a task logs until it has at least so many."""
    tool(folder, name, prints)
    # Asked once to see that the tool tells anything, then for each line; the line of the last time
    # may still be on its way.
    times = f'$(wc -l <"{folder / "queries"}")'
    wait = f"until (( {times} >= {lines + 2} )) 2>/dev/null; do sleep 0.1; done"
    run = start(folder, "bash", "-c", wait, path=str(folder), SLURM_LOCALID="0")
    words = [line.split() for line in printed(run)]
    assert lines <= len(words) <= lines + 1
    return words


@pytest.mark.parametrize(
    ("name", "prints", "reason"),
    [
        ("ls", "", "neither nvidia-smi nor rocm-smi is on its PATH"),
        (
            "nvidia-smi",
            "Failed to initialize NVML: Driver/library version mismatch\n",
            "nvidia-smi",
        ),
        ("rocm-smi", "GPU[0]\t\t: get_power_avg, Not supported on the given system\n", "rocm-smi"),
    ],
    ids=["none", "nvidia", "rocm"],
)
def test_a_node_without_power_figures_logs_it_once(
    tmp_path: Path, name: str, prints: str, reason: str
) -> None:
    tool(tmp_path, name, prints)
    run = start(tmp_path, "sleep", "0.5", path=str(tmp_path), SLURM_LOCALID="0")
    (line,) = printed(run)
    assert line.startswith("[autotune power] n07 none ")
    assert reason in line


def test_one_task_of_a_node_samples_it(tmp_path: Path) -> None:
    tool(tmp_path, "nvidia-smi", NVIDIA)
    assert printed(start(tmp_path, "sleep", "0.2", path=str(tmp_path))) == []


def test_the_sampler_goes_when_its_task_is_killed(tmp_path: Path) -> None:
    tool(tmp_path, "nvidia-smi", NVIDIA)
    run = start(tmp_path, "sleep", "60", path=str(tmp_path), SLURM_LOCALID="0")
    assert run.stdout
    run.stdout.readline()
    below = psutil.Process(run.pid).children(recursive=True)
    assert below
    assert all(process.nice() == 19 for process in below)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    gone, left = psutil.wait_procs(below, timeout=PATIENCE_S)
    assert gone
    assert not left
    run.stdout.close()


ADDRESS = "127.0.0.1"


def meet(
    folder: Path, *, locks: Path | None = None, **variables: str
) -> tuple[subprocess.Popen[str], str, int]:
    """A process that holds the port until its input ends; and what it found."""
    script = folder / "meet.sh"
    rendezvous = RENDEZVOUS.replace(LOCKS, str(locks)) if locks else RENDEZVOUS
    script.write_text(f'{rendezvous}\necho "$MASTER_ADDR $MASTER_PORT"\ncat\n')
    process = subprocess.Popen(
        ["bash", str(script)],
        cwd=folder,
        env=os.environ | variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    address, port = process.stdout.readline().split()
    return process, address, int(port)


def test_runs_side_by_side_get_ports_of_their_own(tmp_path: Path) -> None:
    found = [meet(tmp_path, MASTER_ADDR=ADDRESS) for _ in range(3)]
    ports = [port for _, _, port in found]
    assert len(set(ports)) == 3
    assert all(FIRST_PORT <= port < FIRST_PORT + PORTS for port in ports)
    for process, _, _ in found:
        process.communicate(timeout=PATIENCE_S)


def test_a_port_is_free_again_after_its_run(tmp_path: Path) -> None:
    first, _, port = meet(tmp_path, MASTER_ADDR=ADDRESS)
    first.communicate(timeout=PATIENCE_S)
    second, _, again = meet(tmp_path, MASTER_ADDR=ADDRESS)
    second.communicate(timeout=PATIENCE_S)
    assert again == port


def test_a_port_at_which_something_listens_is_passed_over(tmp_path: Path) -> None:
    first, _, port = meet(tmp_path, MASTER_ADDR=ADDRESS)
    first.communicate(timeout=PATIENCE_S)
    with socket.create_server((ADDRESS, port)):
        second, _, other = meet(tmp_path, MASTER_ADDR=ADDRESS)
        second.communicate(timeout=PATIENCE_S)
    assert other != port


@pytest.mark.parametrize("trap", ["open to others", "a link"])
def test_a_folder_of_locks_that_others_can_write_is_not_used(tmp_path: Path, trap: str) -> None:
    locks = tmp_path / "locks"
    locks.mkdir()
    locks.chmod(0o777)
    for port in range(FIRST_PORT, FIRST_PORT + PORTS):
        os.mkfifo(locks / str(port))  # opening it would wait for ever
    named = locks
    if trap == "a link":
        locks.chmod(0o700)
        named = tmp_path / "link"
        named.symlink_to(locks)
    process, _, _ = meet(tmp_path, locks=named, MASTER_ADDR=ADDRESS)
    process.communicate(timeout=PATIENCE_S)


@pytest.mark.xdist_group("slurm")
def test_a_node_whose_name_is_unknown_is_met_at_its_address(tmp_path: Path, slurm: Cluster) -> None:
    assert slurm.nodes[1] == "n02"
    process, address, _ = meet(tmp_path, SLURM_JOB_NODELIST="n[02-04]", MASTER_ADDR="")
    process.communicate(timeout=PATIENCE_S)
    assert address == ADDRESS
