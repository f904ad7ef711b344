"""A real Ray cluster of several nodes on this machine, whose nodes and head can be killed.

It is held by a process of its own, `python -m tests.ray_nodes PORT`, which does one command a line
(`start N`, `kill-node`, `kill-head`) and ends all with itself.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
import pytest

from tests.cluster.ports import free_ports
from tests.group_resources import Shared
from tests.patience import PATIENCE_S
from tests.requirement import require

CPUS_OF_NODE = 2
START_LIMIT_S = 300.0
_SMALL_STORE = 80 * 1024 * 1024
_SYSTEM = {
    "prestart_worker_first_driver": False,
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 3000,
    "health_check_failure_threshold": 3,
}


def require_ray() -> None:
    """Skip this test where Ray is not installed."""
    require(find_spec("ray"), "ray (pip install 'autotune[ray]')")


class RayNodes:
    """A head without CPUs of its own and some nodes of two.

    Attributes:
        address: of the head; a head that is started again has the same.
    """

    def __init__(self, nodes: int) -> None:
        require_ray()
        self._nodes = nodes
        # Sockets lie in it, so its name has to be short.
        self._folder = tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True)
        (port,) = free_ports(1)
        (Path(self._folder.name) / "ray").mkdir()
        self.address = ""
        self._holder = subprocess.Popen(
            [sys.executable, "-m", "tests.ray_nodes", str(port)],
            env=os.environ
            | {"RAY_TMPDIR": self._folder.name, "RAY_USAGE_STATS_ENABLED": "0"}
            | {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", "OMP_NUM_THREADS": "1"}
            # Ray's default of 15 gives its workers no time beside four busy processes.
            | {"RAY_worker_niceness": "0"},
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> RayNodes:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._holder.communicate(timeout=PATIENCE_S)
        self._folder.cleanup()

    def start(self) -> None:
        """Start the head, where there is none, and what is missing of the nodes."""
        self.address = self._do(f"start {self._nodes}")

    def kill_node(self) -> None:
        """Kill the node that was started last, as a power cut does."""
        self._do("kill-node")

    def until_noticed(self) -> None:
        """Wait until the head knows that a killed node is dead: it then counts those that live."""
        self._do(f"start {self._nodes - 1}")

    def kill_head(self) -> None:
        """Kill the head and all nodes."""
        self._do("kill-head")

    def _do(self, command: str) -> str:
        """Return the head's address, once it is done."""
        assert self._holder.stdin
        assert self._holder.stdout
        self._holder.stdin.write(f"{command}\n")
        self._holder.stdin.flush()
        answer = self._holder.stdout.readline().strip()
        assert answer, f"Ray's cluster does not {command}"
        return answer


_NODES = Shared(lambda: RayNodes(3))


@pytest.fixture(scope="session")
def ray_nodes() -> RayNodes:
    """Three nodes; mark tests of it `pytest.mark.xdist_group("ray")`."""
    return _NODES.get()


def _cut_power(node: Any) -> None:
    """Kill all that runs on a node, trials too: by themselves they outlive its Ray a while."""
    own = [psutil.Process(process.pid) for _, process in node.live_processes()]
    below = [each for process in own for each in process.children(recursive=True)]
    for process in own + below:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def hold(port: int) -> None:
    """Do what is asked until there is no more, and end what was started."""
    from ray.cluster_utils import Cluster

    store = {"object_store_memory": _SMALL_STORE}
    cluster: Any = None
    address = ""
    nodes: list[Any] = []
    for command in sys.stdin:
        if command.startswith("start"):
            if cluster is None:
                head: dict[str, Any] = {
                    "num_cpus": 0,
                    "include_dashboard": False,
                    "include_log_monitor": False,
                    "no_monitor": True,
                    "gcs_server_port": port,
                }
                head["_system_config"] = _SYSTEM
                cluster = Cluster(initialize_head=True, head_node_args={**head, **store})
                address = cluster.address
            while len(nodes) < int(command.split()[1]):
                nodes.append(cluster.add_node(num_cpus=CPUS_OF_NODE, wait=False, **store))
            cluster.wait_for_nodes(timeout=START_LIMIT_S)
        elif command == "kill-node\n":
            node = nodes.pop()
            _cut_power(node)
            cluster.remove_node(node, allow_graceful=False)
        else:
            for node in (cluster.head_node, *nodes):
                _cut_power(node)
                node.kill_all_processes(check_alive=False, allow_graceful=False)
            cluster, nodes = None, []
        sys.stdout.write(f"{address}\n")
        sys.stdout.flush()
    if cluster:
        cluster.shutdown()


if __name__ == "__main__":
    hold(int(sys.argv[1]))
