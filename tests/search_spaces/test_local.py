from __future__ import annotations

import os
import shutil
from pathlib import Path

import psutil
import pytest

from search_spaces.catalog import amd, load_machine, local, machine_from_table
from search_spaces.catalog.amd import InstalledGpu


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is searched for programs before all others."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    local.local_machine.cache_clear()
    return tmp_path


def tool(folder: Path, script: str, *, name: str = "nvidia-smi") -> None:
    program = folder / name
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
    tool(on_path, f"echo '{line}'; echo '{line}'")
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
        ("NVIDIA GB200", 2500),
        ("Tesla V100-SXM2-16GB", 125),
        ("AMD Instinct MI325X", 1307),
        ("AMD INSTINCT MI250 (MCM) OAM AC MBA", 181),
        ("Arcturus GL-XL [AMD Instinct MI100]", 184.6),
    ],
)
def test_known_gpus_have_plausible_figures(name: str, peak: float) -> None:
    machine = local.machine_of_gpus([InstalledGpu(name, 40.0, 400.0)])
    assert machine.peak_tflops == peak
    table = {key: getattr(machine, key) for key in machine.__dataclass_fields__}
    assert machine_from_table(table) == machine


RECORDED = Path(__file__).parent / "recorded"
"""What `amd-smi static --json` and `rocm-smi --json` print, shortened: an MI300X under ROCm 6; an
MI355X under ROCm 7, beside a processor's own; an MI250X, whose cap comes with the first GCD."""


@pytest.mark.parametrize(
    ("output", "gpu", "gpus", "memory_gib", "peak", "watt"),
    [
        ("amd-smi-rocm6.json", "AMD Instinct MI300X", 1, 192.0, 1307, 750),
        ("amd-smi-rocm7.json", "AMD Instinct MI355X", 1, 288.0, 2516, 1400),
        ("rocm-smi-mi250x.txt", "MI250X GCD", 2, 64.0, 191.5, 280),
    ],
)
def test_amds_gpus_are_read_from_their_tools(
    on_path: Path, output: str, gpu: str, gpus: int, memory_gib: float, peak: float, watt: float
) -> None:
    name = "amd-smi" if output.startswith("amd-smi") else "rocm-smi"
    tool(on_path, "echo 'NVIDIA-SMI has failed'; exit 9")
    tool(on_path, f"cat '{RECORDED / output}'", name=name)
    machine = load_machine("local")
    local.local_machine.cache_clear()
    assert (machine.gpu, machine.gpus_per_node, machine.peak_tflops) == (gpu, gpus, peak)
    assert machine.memory_gib == pytest.approx(memory_gib, abs=0.1)
    assert machine.gpu_max_watt == watt
    assert name in machine.sources[0]


def kernel_tree(folder: Path, **files: str) -> None:
    for name, text in files.items():
        file = folder / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")


def test_without_tools_amds_gpus_are_read_from_the_kernel(
    on_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two GCDs of an MI250X and the screen of the board's controller; then ROCm's part alone."""
    tool(on_path, "exit 9")
    drm, kfd = on_path / "drm", on_path / "kfd"
    monkeypatch.setattr(amd, "DRM", drm)
    monkeypatch.setattr(amd, "KFD", kfd)
    kernel_tree(drm, card0__device__vendor="0x1a03", card0__device__device="0x2000")
    for card in (1, 2):
        kernel_tree(
            drm,
            **{
                f"card{card}__device__vendor": "0x1002",
                f"card{card}__device__device": "0x7408",
                f"card{card}__device__mem_info_vram_total": "68702699520",
                f"card{card}__device__hwmon__hwmon{card}__power1_cap_max": "560000000",
            },
        )
    machine = load_machine("local")
    local.local_machine.cache_clear()
    assert (machine.gpu, machine.gpus_per_node) == ("MI250X GCD", 2)
    assert (machine.memory_gib, machine.gpu_max_watt) == (64.0, 280)
    shutil.rmtree(drm)
    processor = "cpu_cores_count 64\nsimd_count 0\nvendor_id 0\ndevice_id 0"
    gpu = "cpu_cores_count 0\nsimd_count 416\nvendor_id 4098\ndevice_id 29711"
    bank = "heap_type 1\nsize_in_bytes 68702699520"
    kernel_tree(kfd, **{"0__properties": processor, "1__properties": gpu})
    kernel_tree(kfd, **{"0__mem_banks__0__properties": bank, "1__mem_banks__0__properties": bank})
    machine = load_machine("local")
    local.local_machine.cache_clear()
    assert (machine.gpus_per_node, machine.memory_gib, machine.peak_tflops) == (1, 64.0, 181)
    assert machine.gpu_max_watt is None


@pytest.mark.parametrize(
    "script", ["exit 9", "exec sleep 30", "echo 'No devices were found'", "echo '[{}]'"]
)
def test_a_broken_driver_leaves_the_cpu(
    on_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setattr(local, "QUERY_LIMIT_S", 0.3)
    for name in ("nvidia-smi", "amd-smi", "rocm-smi"):
        tool(on_path, script, name=name)
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
