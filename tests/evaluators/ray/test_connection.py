"""A cluster that is not there, and a machine without Ray."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from evaluators.ray.connection import RayConnection, RayRefused, RayUnavailable
from tests.cluster.ports import free_ports
from tests.ray_nodes import require_ray

pytestmark = pytest.mark.xdist_group("ray")


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RayRefused, match=r"pip install 'autotune\[ray\]'"):
        RayConnection("10.0.0.1:6379", limit_s=1).ask("look", bundle={})


def test_without_rays_client_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    require_ray()
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(RayRefused, match=r"pip install 'ray\[client\]'"):
        RayConnection("ray://10.0.0.1:10001", limit_s=1).ask("look", bundle={})


def test_a_cluster_that_is_not_there_is_unavailable() -> None:
    require_ray()
    connection = RayConnection(f"127.0.0.1:{free_ports(1)[0]}", limit_s=1)
    with pytest.raises(RayUnavailable, match="Connection refused"):
        connection.ask("look", bundle={})
    connection.close()


def test_ray_is_not_imported_by_the_process_that_asks() -> None:
    """It takes a second, and a driver of Ray ends with the cluster's head."""
    look = "import sys, evaluators.ray.backend; sys.exit('ray' in sys.modules)"
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-c", look], cwd=root, check=False).returncode == 0
