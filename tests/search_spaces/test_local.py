from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from search_spaces.catalog import load_machine, local, machine_from_table


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is searched for programs before all others."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    local.local_machine.cache_clear()
    return tmp_path


def nvidia_smi(folder: Path, script: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_a_cpu_is_four_to_eight_ranks_that_share_the_memory() -> None:
    machine = local.machine_of_cpus()
    assert 4 <= machine.gpus_per_node <= 8
    assert machine.max_nodes == 1
    assert machine.peak_tflops is None
    total_gib = psutil.virtual_memory().total / 2**30
    assert 0 < machine.memory_gib * machine.gpus_per_node <= total_gib / 2 + 0.1


def test_a_container_may_have_less_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(local, "CGROUP_LIMIT", limit)
    limit.write_text("max\n")
    whole = local.machine_of_cpus().memory_gib
    limit.write_text(f"{2**30}\n")
    limited = local.machine_of_cpus()
    assert limited.memory_gib == round(0.5 / limited.gpus_per_node, 2) < whole


def test_gpus_are_read_from_nvidia_smi(on_path: Path) -> None:
    line = "NVIDIA H100 80GB HBM3, 81559, 700.00"
    nvidia_smi(on_path, f"echo '{line}'; echo '{line}'")
    machine = load_machine("local")
    local.local_machine.cache_clear()
    assert (machine.gpus_per_node, machine.memory_gib, machine.peak_tflops) == (2, 79.6, 989)
    assert machine.gpu_max_watt == 700
    assert "2 x NVIDIA H100" in machine.description


def test_an_unknown_gpu_has_no_peak_and_no_cap() -> None:
    gpus = local.parse_gpus("NVIDIA Whatever 9, 24576, [N/A]\nsomething else\n")
    machine = local.machine_of_gpus(gpus)
    assert (machine.gpus_per_node, machine.memory_gib) == (1, 24.0)
    assert machine.peak_tflops is None
    assert machine.gpu_max_watt is None


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA A100-SXM4-40GB", 312),
        ("NVIDIA A100-PCIE-40GB", 312),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA GH200 480GB", 989),
        ("NVIDIA H200", 989),
        ("NVIDIA GB200", 2250),
        ("Tesla V100-SXM2-16GB", 125),
    ],
)
def test_known_gpus_have_plausible_figures(name: str, peak: float) -> None:
    machine = local.machine_of_gpus([(name, 40.0, 400.0)])
    assert machine.peak_tflops == peak
    table = {key: getattr(machine, key) for key in machine.__dataclass_fields__}
    assert machine_from_table(table) == machine


@pytest.mark.parametrize("script", ["exit 9", "exec sleep 30", "echo 'No devices were found'"])
def test_a_broken_driver_leaves_the_cpu(
    on_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setattr(local, "QUERY_LIMIT_S", 0.3)
    nvidia_smi(on_path, script)
    machine = load_machine("local")
    local.local_machine.cache_clear()
    assert machine.peak_tflops is None
    assert "no GPU" in machine.description


def test_no_driver_leaves_the_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    local.local_machine.cache_clear()
    assert load_machine("local") is load_machine("local")
    assert load_machine("local") == local.machine_of_cpus()
    local.local_machine.cache_clear()
