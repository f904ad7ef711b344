"""Machines by the names of clusters and GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from search_spaces.catalog import load_machine
from tests.benchmarks.accuracy.hardware import kind_of, machine_of, unknown_gpu
from tests.benchmarks.accuracy.measurements import timed


@pytest.mark.parametrize(
    ("gpu", "kind"),
    [
        ("V100-16GB", "V100"),
        ("A800-80GB", "A800"),
        ("H100-96GB-500W", "H100"),
        ("H200-141GB", "H200"),
        ("GH200 (96GB)", "GH200"),
        ("MI300 (192GB)", "MI300X"),
        ("MI250X-GCD", "MI250X GCD"),
        ("PVC tile", "Max 1550 tile"),
    ],
)
def test_a_gpu_is_known_by_what_its_name_holds(tmp_path: Path, gpu: str, kind: str) -> None:
    assert kind_of(timed(tmp_path, {"gpu": gpu})[0]) == kind


def test_a_gpu_without_a_data_sheet_is_told_apart(tmp_path: Path) -> None:
    unknown, known = timed(tmp_path, {"gpu": "TPU v4"}, {"gpu": "Gaudi2"})
    assert unknown_gpu(unknown)
    assert not unknown_gpu(known)
    with pytest.raises(LookupError, match="no data sheet of 'TPU v4' is known"):
        machine_of(unknown)


def test_links_of_a_catalog_machine(tmp_path: Path) -> None:
    """By the first word of its name, where the GPU is the same."""
    rows = timed(
        tmp_path,
        {"cluster": "polaris-a100", "gpu": "A100-40GB", "gpus_per_node": ""},
        {"cluster": "polaris-h100", "gpu": "H100"},
    )
    known, other = (machine_of(row) for row in rows)
    catalog = load_machine("polaris")
    assert known.inter_node_gb_per_s == catalog.inter_node_gb_per_s
    assert known.intra_node_gb_per_s == catalog.intra_node_gb_per_s
    assert known.memory_bandwidth_gb_per_s == catalog.memory_bandwidth_gb_per_s
    assert known.gpus_per_node == 4
    assert (other.inter_node_gb_per_s, other.intra_node_gb_per_s) == (50, 450)


@pytest.mark.parametrize(
    ("cluster", "gpu", "network"),
    [
        ("vtrain-a100", "A100", 12.5),
        ("internevo-a100", "A800-80GB", 6.25),
        ("anyone-a100", "A100", 25),
        ("anyone-v100", "V100-32GB", 12.5),
    ],
)
def test_network_of_known_clusters(tmp_path: Path, cluster: str, gpu: str, network: float) -> None:
    [row] = timed(tmp_path, {"cluster": cluster, "gpu": gpu})
    assert machine_of(row).inter_node_gb_per_s == network


def test_a_row_says_how_large_its_nodes_are_and_its_name_which_memory_it_has(
    tmp_path: Path,
) -> None:
    rows = timed(tmp_path, {"gpus_per_node": 4, "gpu": "H100-96GB"}, {"gpu": "H100"})
    assert [machine_of(row).gpus_per_node for row in rows] == [4, 8]
    assert [machine_of(row).memory_bandwidth_gb_per_s for row in rows] == [2400, 3350]
