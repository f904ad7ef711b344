"""What `autotune doctor --ray` says."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

from evaluators.cluster.profile import ClusterProfile
from server.cli.checks.ray import check_ray
from tests.cluster.ports import free_ports
from tests.evaluators.slurm.trials import machine
from tests.ray_nodes import RayNodes, ray_nodes, require_ray

__all__ = ["ray_nodes"]

pytestmark = pytest.mark.xdist_group("ray")


def test_without_ray_the_check_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    (result,) = check_ray(None, None, machine=None, nodes=1)
    assert result.status == "fail"
    assert result.advice == "pip install 'autotune[ray]'"


def test_no_address_and_no_cluster_fail_with_advice() -> None:
    require_ray()
    assert [result.status for result in check_ray(None, None, machine=None, nodes=1)] == [
        "ok",
        "fail",
    ]
    nowhere = f"127.0.0.1:{free_ports(1)[0]}"
    *_, silent = check_ray(None, nowhere, machine=None, nodes=1)
    assert silent.status == "fail"
    assert "Connection refused" in silent.found


def test_a_cluster_is_described_and_held_against_the_trials(ray_nodes: RayNodes) -> None:
    profile = ClusterProfile(name="mine")
    profile = replace(profile, ray=replace(profile.ray, address=ray_nodes.address))
    results = check_ray(profile, None, machine=machine(), nodes=4)
    found = {result.name: (result.status, result.found) for result in results}
    assert found["Ray cluster"] == ("ok", "answers; 4 nodes: 3 with 2 CPU; 1 with no CPU")
    assert found["Ray: nodes"] == ("fail", "the Ray cluster has 3 nodes with 2 CPU each")
