"""Machines: presets, this machine, and a user's own file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from search_spaces.catalog.files import (
    known_name,
    packaged_names,
    read_packaged,
    read_toml,
    unknown_name,
)
from search_spaces.catalog.gpus import gpu_kind
from search_spaces.catalog.local import LOCAL, local_machine
from search_spaces.errors import InvalidInput
from search_spaces.fields import checked, refuse_all
from search_spaces.machine import PEAK, Machine

FOLDER = "machines"

NEARLY_TWICE = 0.015  # data sheets round: 1979 and 2 x 989
SLOWEST_NVLINK = 150  # GB/s of one direction; slower links are PCIe, or single ones of a mesh
FASTEST_NETWORK = 100  # GB/s: 800 Gbit/s for each GPU
FAST_GPU_TFLOPS = 3000  # from here on a GPU may have more than one such NIC

RENAMED = {
    "memory_gb": "memory is given in GiB, as memory_gib (1 GB is 0.931 GiB)",
    "memory_mib": "memory is given in GiB, as memory_gib (1024 MiB are 1 GiB)",
    "memory_mb": "memory is given in GiB, as memory_gib (1 GB is 0.931 GiB)",
    "memory_bytes": "memory is given in GiB, as memory_gib (2^30 bytes are 1 GiB)",
    "memory": "memory is given in GiB, as memory_gib",
    "peak_flops": "the peak is given in TFLOP/s, as peak_tflops",
    "peak_gflops": "the peak is given in TFLOP/s, as peak_tflops (1000 GFLOP/s are 1)",
    "peak_pflops": "the peak is given in TFLOP/s, as peak_tflops (1 PFLOP/s is 1000)",
    "memory_bandwidth_tb_per_s": "given in GB/s, as memory_bandwidth_gb_per_s (1 TB/s is 1000)",
    "memory_bandwidth_gib_per_s": "given in GB/s, as memory_bandwidth_gb_per_s (1 GiB/s is 1.074)",
    "intra_node_gbit_per_s": "given in GB/s, as intra_node_gb_per_s (8 Gbit/s are 1)",
    "inter_node_gbit_per_s": "given in GB/s, as inter_node_gb_per_s (8 Gbit/s are 1)",
    "intra_node_gbps": "given in GB/s, as intra_node_gb_per_s (8 Gbit/s are 1)",
    "inter_node_gbps": "given in GB/s, as inter_node_gb_per_s (8 Gbit/s are 1)",
}


def machine_names() -> list[str]:
    return sorted([*packaged_names(FOLDER), LOCAL])


def load_machine(choice: str) -> Machine:
    """Return a preset by its name in any case; `local` is read off the machine that this runs on.

    Raises:
        InvalidInput: field `machine`, with the closest names.
    """
    name = known_name(choice, machine_names())
    if name is None:
        raise unknown_name("machine", choice, machine_names())
    if name == LOCAL:
        return local_machine()
    return machine_from_table({"name": name} | read_packaged(FOLDER, name))


def read_machine(path: Path) -> Machine:
    """Return a user's TOML file, with the fields of `Machine`; the name may be left to the file's
    name.

    Raises:
        InvalidInput, InvalidInputs: where the file cannot be read or a figure is refused.
    """
    machine = machine_from_table({"name": path.stem} | read_toml(path, field="machine"))
    refuse_all(unit_slips(machine))
    return machine


def unit_slips(machine: Machine) -> Iterator[InvalidInput]:
    """Yield figures that are plausible in their unit, and yet look like those of another one: bits
    for bytes in a network, both directions of a link, a peak with sparsity, a module's two dies."""
    kind = gpu_kind(machine.gpu)
    peak, link, network = (
        machine.peak_tflops or 0.0,
        machine.intra_node_gb_per_s,
        machine.inter_node_gb_per_s,
    )
    if kind["peak_tflops"] and abs(peak / (2 * kind["peak_tflops"]) - 1) < NEARLY_TWICE:
        twice = "both dies of a module" if kind["dies"] > 1 else "the peak with sparsity"
        known = f"{kind['peak_tflops']:g}"
        reason = f"this looks like {twice}; one {machine.gpu} reaches {known} TFLOP/s, dense"
        yield InvalidInput("machine.peak_tflops", peak, reason, valid=known)
    one_way = kind["intra_node_gb_per_s"]
    if one_way >= SLOWEST_NVLINK and abs(link / (2 * one_way) - 1) < NEARLY_TWICE:
        reason = f"this looks like both directions together; one direction has {one_way:g} GB/s"
        yield InvalidInput("machine.intra_node_gb_per_s", link, reason, valid=f"{one_way:g}")
    if (network > FASTEST_NETWORK and peak < FAST_GPU_TFLOPS) or network >= 2 * link:
        reason = f"this looks like Gbit/s; in GB/s it would be {network / 8:g}"
        valid = "a GPU's share of its node's network, one direction"
        yield InvalidInput("machine.inter_node_gb_per_s", network, reason, valid=valid)


def machine_from_table(table: Mapping[str, Any]) -> Machine:
    """Return a machine from its fields.

    Raises:
        InvalidInputs: fields `machine.…`: unknown, missing, of a wrong type, or not plausible in
            the field's unit.
    """
    return consistent_machine(
        checked(Machine, {"name": "custom"} | dict(table), prefix="machine", renamed=RENAMED)
    )


def consistent_machine(machine: Machine) -> Machine:
    """Return the machine; raises InvalidInputs, fields `machine.…` that do not fit each other."""
    refuse_all(_contradictions(machine))
    return machine


def _contradictions(machine: Machine) -> Iterator[InvalidInput]:
    idle, cap = machine.gpu_idle_watt, machine.gpu_max_watt
    if idle is not None and cap is not None and idle > cap:
        reason = f"a GPU cannot idle above its cap of {cap:g} W"
        yield InvalidInput("machine.gpu_idle_watt", idle, reason, valid=f"at most {cap:g} W")
    if machine.fast_gpus % machine.gpus_per_node:
        reason = f"nodes of {machine.gpus_per_node} GPUs do not fill it"
        valid = f"a multiple of {machine.gpus_per_node}"
        yield InvalidInput("machine.fast_domain", machine.fast_domain, reason, valid=valid)
    if machine.peaks_tflops and machine.peak_tflops is None:
        reason = "a machine with peaks in narrower formats has a 16-bit one, too"
        yield InvalidInput("machine.peak_tflops", None, reason, valid=PEAK.valid(float))
