"""The machine of a row, by what its cluster and its GPU are called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from search_spaces.catalog import load_machine, machine_names
from search_spaces.machine import Machine
from tests.benchmarks.accuracy.tables import PublishedRow

USUAL_GPUS_PER_NODE = 8
NO_LIMIT = 1_000_000


@dataclass(frozen=True)
class Sheet:
    """A GPU's data sheet. Peak in dense 16-bit TFLOP/s, rates in GB/s in one direction.

    Attributes:
        kind: GPUs of two kinds are never of one stack. The cost model finds its constants by it.
        network: what nodes with such GPUs usually have for each.
    """

    kind: str
    memory_gib: float
    peak: float
    bandwidth: float
    intra: float
    network: float


A100 = Sheet("A100", 80, 312, 2000, 300, 25)
H100 = Sheet("H100", 80, 989, 3350, 450, 50)
GH200 = Sheet("GH200", 96, 989, 4000, 150, 25)
MI300X = Sheet("MI300X", 192, 1307, 5300, 448, 50)
PVC = Sheet("Max 1550 tile", 64, 419, 1640, 28, 16.7)
MI250X = Sheet("MI250X GCD", 64, 191.5, 1600, 100, 12.5)

SHEETS: tuple[tuple[tuple[str, ...], Sheet], ...] = (
    (("v100", "16gb"), Sheet("V100", 16, 125, 900, 150, 12.5)),
    (("v100",), Sheet("V100", 32, 125, 900, 150, 12.5)),
    (("a100", "40gb"), Sheet("A100", 40, 312, 1555, 300, 25)),
    (("a100",), A100),
    (("a800",), Sheet("A800", 80, 312, 2000, 200, 25)),
    (("gb300",), Sheet("GB300", 277, 2500, 8000, 900, 100)),
    (("gb200",), Sheet("GB200", 186, 2500, 8000, 900, 50)),
    (("gh200",), GH200),
    (("h200",), Sheet("H200", 141, 989, 4800, 450, 50)),
    (("h100", "96gb"), Sheet("H100", 96, 989, 2400, 450, 50)),  # HBM2e, as in Grand Teton
    (("h100", "pcie"), Sheet("H100 PCIe", 80, 756, 2000, 64, 50)),
    (("h100",), H100),
    (("h800",), Sheet("H800", 80, 989, 3350, 200, 50)),
    (("h20",), Sheet("H20", 96, 148, 4000, 450, 50)),
    (("b200",), Sheet("B200", 180, 2250, 8000, 900, 50)),
    (("b300",), Sheet("B300", 288, 2250, 8000, 900, 100)),
    (("mi250",), MI250X),
    (("mi300a",), Sheet("MI300A", 128, 980.6, 5300, 384, 25)),
    (("mi300",), MI300X),
    (("mi325",), Sheet("MI325X", 256, 1300, 6000, 448, 50)),
    (("mi355",), Sheet("MI355X", 288, 2500, 8000, 535.5, 50)),
    (("pvc",), PVC),
    (("ponte vecchio",), PVC),
    (("1550",), PVC),
    (("gaudi", "2"), Sheet("Gaudi2", 96, 432, 2460, 300, 37.5)),
    (("gaudi", "3"), Sheet("Gaudi3", 128, 1677, 3700, 600, 75)),
    (("l40s",), Sheet("L40S", 48, 362, 864, 32, 25)),
    (("a40",), Sheet("A40", 48, 149.7, 696, 32, 12.5)),
    (("4090",), Sheet("RTX 4090", 24, 165, 1008, 32, 12.5)),
    (("3090",), Sheet("RTX 3090", 24, 71, 936, 32, 12.5)),
)
"""By what a GPU's name holds; the first that matches counts. Peaks, bandwidths and links: the
makers' data sheets as ml-engineering (github.com/stas00/ml-engineering) gives them, network pages
included; H800, H20, MI300A, PVC, Gaudi's network and all after it from memory."""

FOUR_BITS: Mapping[str, Mapping[str, float]] = {
    "GB300": {"nvfp4": 15000},
    "B300": {"nvfp4": 13500},
}
"""Peaks that are no multiple of the 16-bit one, as in the catalog."""

NETWORKS: Mapping[str, float] = {"vtrain": 12.5, "internevo": 6.25, "vista": 50.0}
"""GB/s of network for each GPU of known clusters that the catalog lacks. vTrain: 800 Gbit/s for
eight GPUs (configuration in its repository); InternEvo: four 100 Gbit/s NICs for eight (its
performance document); Vista: 400 Gbit/s for the one GPU of a node (from memory)."""


def kind_of(row: PublishedRow) -> str:
    return sheet_of(row).kind


def unknown_gpu(row: PublishedRow) -> bool:
    return _found(row["gpu"]) is None


def sheet_of(row: PublishedRow) -> Sheet:
    """Raises:
    LookupError: where `unknown_gpu`.
    """
    if found := _found(row["gpu"]):
        return found
    raise LookupError(f"no data sheet of {row['gpu']!r} is known")


def _found(gpu: str) -> Sheet | None:
    name = gpu.casefold()
    return next((sheet for parts, sheet in SHEETS if all(part in name for part in parts)), None)


def machine_of(row: PublishedRow) -> Machine:
    """The GPU by its data sheet; its links by NETWORKS, by the catalog where the cluster is one of
    its machines, otherwise by the data sheet."""
    sheet = sheet_of(row)
    links = _catalog_machine(row, sheet)
    intra = links.intra_node_gb_per_s if links else sheet.intra
    inter = links.inter_node_gb_per_s if links else sheet.network
    nodes = links.gpus_per_node if links else USUAL_GPUS_PER_NODE
    domain = row.number("nvlink_domain")
    return Machine(
        name=row["cluster"],
        description="",
        gpu=sheet.kind,
        gpus_per_node=int(row.number("gpus_per_node") or nodes),
        max_nodes=NO_LIMIT,
        memory_gib=row.number("gpu_memory_gb") or sheet.memory_gib,
        peak_tflops=sheet.peak,
        memory_bandwidth_gb_per_s=sheet.bandwidth,
        intra_node_gb_per_s=intra,
        inter_node_gb_per_s=_network(row) or inter,
        fast_domain=None if domain is None else int(domain),
        peaks_tflops=FOUR_BITS.get(sheet.kind, {}),
    )


def _network(row: PublishedRow) -> float | None:
    words = _words(row["cluster"])
    return next((rate for name, rate in NETWORKS.items() if name in words), None)


def _catalog_machine(row: PublishedRow, sheet: Sheet) -> Machine | None:
    """Where a word of the cluster's name is the first of a machine's, and both have the same GPU:
    `frontier-mi250x` is `frontier`, and a `lumi` with another GPU is not `lumi-g`."""
    words = _words(row["cluster"])
    for machine in _catalog():
        known = _found(machine.gpu)
        if _words(machine.name)[0] in words and known and known.kind == sheet.kind:
            return machine
    return None


@cache
def _catalog() -> tuple[Machine, ...]:
    """All machines that lie in the catalog as files; this machine is none."""
    return tuple(load_machine(name) for name in machine_names() if name != "local")


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9.]+", name.casefold()) if word]
