"""The machine that this runs on."""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import psutil

from search_spaces.catalog.amd import InstalledGpu, amd_gpus
from search_spaces.catalog.gpus import gpu_kind
from search_spaces.machine import Machine

LOCAL = "local"

QUERY = ("nvidia-smi", "--query-gpu=name,memory.total,power.limit", "--format=csv,noheader,nounits")
QUERY_LIMIT_S = 10.0

# Without GPUs a rank runs on a process of its own. At least four let small layouts be told apart
# even on two cores; more than eight would only wait for one another.
FEWEST_RANKS, MOST_RANKS = 4, 8
SHARE_OF_MEMORY = 0.5  # of the RAM, for all ranks together: the rest is for everybody else
CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")

# Orders of magnitude of one rank among several on a common CPU, gloo over loopback. They only steer
# which trial comes first: what is reported here is measured.
CPU_MEMORY_BANDWIDTH_GB_PER_S = 10.0
LOOPBACK_GB_PER_S = 1.0


@cache
def local_machine() -> Machine:
    """Return this machine: its NVIDIA GPUs, or AMD's, or else its CPU.

    Read once in a process, so that a campaign sees one machine.
    """
    if gpus := _nvidia_gpus():
        return machine_of_gpus(gpus, source="nvidia-smi")
    amd, source = amd_gpus(limit_s=QUERY_LIMIT_S)
    return machine_of_gpus(amd, source=source) if amd else machine_of_cpus()


def _nvidia_gpus() -> list[InstalledGpu]:
    try:
        query = subprocess.run(
            QUERY, capture_output=True, text=True, timeout=QUERY_LIMIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):  # there is none, or it hangs or fails
        return []
    return parse_gpus(query.stdout)


def machine_of_cpus() -> Machine:
    """Return four to eight ranks that share cores and memory; no peak, and so no MFU."""
    cores = len(os.sched_getaffinity(0))
    ranks = min(max(FEWEST_RANKS, cores), MOST_RANKS)
    memory_bytes = int(psutil.virtual_memory().total)
    with contextlib.suppress(OSError, ValueError):  # no cgroup, or "max": no limit
        memory_bytes = min(memory_bytes, int(CGROUP_LIMIT.read_text()))
    memory_gib = memory_bytes / 2**30
    return Machine(
        name=LOCAL,
        description=f"this machine: {cores} CPU cores, {memory_gib:.0f} GiB, no GPU",
        gpu=f"{platform.machine()} CPU process",
        gpus_per_node=ranks,
        max_nodes=1,
        memory_gib=round(memory_gib * SHARE_OF_MEMORY / ranks, 2),
        peak_tflops=None,
        memory_bandwidth_gb_per_s=CPU_MEMORY_BANDWIDTH_GB_PER_S,
        intra_node_gb_per_s=LOOPBACK_GB_PER_S,
        inter_node_gb_per_s=LOOPBACK_GB_PER_S,
        sources=(
            "gpus_per_node, memory_gib: the operating system; half of the memory, shared by ranks",
            "memory_bandwidth_gb_per_s, intra_node_gb_per_s, inter_node_gb_per_s: assumed",
        ),
    )


def machine_of_gpus(gpus: Sequence[InstalledGpu], *, source: str = "nvidia-smi") -> Machine:
    """Return a node of equal GPUs; if they differ, the least memory counts."""
    first = gpus[0]
    kind = {"gpu": first.name, **gpu_kind(first.name)}
    return Machine(
        name=LOCAL,
        description=f"this machine: {len(gpus)} x {kind['gpu']}",
        gpu=kind["gpu"],
        gpus_per_node=len(gpus),
        max_nodes=1,
        memory_gib=round(min(gpu.memory_gib for gpu in gpus), 1),
        peak_tflops=kind["peak_tflops"],
        memory_bandwidth_gb_per_s=kind["memory_bandwidth_gb_per_s"],
        intra_node_gb_per_s=kind["intra_node_gb_per_s"],
        inter_node_gb_per_s=kind["intra_node_gb_per_s"],
        gpu_max_watt=first.max_watt and first.max_watt / kind["dies"],
        sources=(f"gpu, gpus_per_node, memory_gib, gpu_max_watt: {source}", kind["source"]),
    )


def parse_gpus(listing: str) -> list[InstalledGpu]:
    """Parse lines of `name, MiB, W`; others list no GPU."""
    gpus = []
    for line in listing.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 3 and (memory_mib := _number(parts[1])):
            gpus.append(InstalledGpu(parts[0], memory_mib / 1024, _number(parts[2])))
    return gpus


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
