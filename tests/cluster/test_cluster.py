"""The cluster itself: up in about a second, gone without a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.cluster.__main__ import main
from tests.cluster.cluster import Cluster, foreign_variables
from tests.cluster.fixtures import make_slurm, require_slurm, slurm
from tests.patience import PATIENCE_S, until

__all__ = ["make_slurm", "slurm"]

pytestmark = pytest.mark.xdist_group("slurm")

OWNER = """
import time
from tests.cluster import Cluster
cluster = Cluster(nodes=2, gpus=0)
cluster.start()
cluster.command("sbatch", "--output=/dev/null", "--wrap=setsid sleep 987654 & sleep 987654")
print(cluster.folder, flush=True)
time.sleep(600)
"""


def traces(folder: Path) -> list[str]:
    """Processes that still know of the cluster in that folder."""
    left = []
    for process in psutil.process_iter(["pid", "name", "cmdline", "environ"]):
        words = [*(process.info["cmdline"] or []), *(process.info["environ"] or {}).values()]
        if process.pid != os.getpid() and any(str(folder) in word for word in words):
            left.append(f"{process.pid} {process.info['name']}")
    return left


def submit(cluster: Cluster, script: str, *options: str) -> str:
    words = ("sbatch", "--parsable", "--no-requeue", "--output=/dev/null", *options)
    return cluster.command(*words, f"--wrap={script}").strip()


def state(cluster: Cluster, job: str) -> str:
    return cluster.command("squeue", "--states=all", "-h", f"--jobs={job}", "-o%T").strip()


def run(cluster: Cluster, script: str, *options: str) -> str:
    """A job that runs."""
    job = submit(cluster, script, *options)
    until(lambda: state(cluster, job) == "RUNNING")
    return job


def test_up_at_once_and_gone_without_a_trace() -> None:
    require_slurm()
    cluster = Cluster()
    cluster.start()
    try:
        assert cluster.states() == dict.fromkeys(cluster.nodes, "idle")
        assert len(cluster.nodes) == 8
        # What a job would leave behind: a child in a session of its own, and one of a lost node.
        run(cluster, "setsid sleep 987654 & sleep 987654", "-w", "n01")
        until(lambda: len(cluster.processes("n01")) >= 3)
        cluster.kill_node("n01")
        ports = listened(cluster.folder)
        assert len(ports) == 8
    finally:
        folder = cluster.folder
        cluster.stop()
    assert not folder.exists()
    assert not traces(folder)
    assert not ports & set(listening())


def listened(folder: Path) -> set[int]:
    daemons = [trace.split()[0] for trace in traces(folder)]
    return {port for port, pid in listening().items() if str(pid) in daemons}


def listening() -> dict[int, int | None]:
    """The process that listens, by its port."""
    everything = psutil.net_connections("tcp")
    bound = [(each.laddr, each.pid) for each in everything if each.status == psutil.CONN_LISTEN]
    return {address.port: pid for address, pid in bound if address}


def test_everything_ends_with_a_killed_owner() -> None:
    require_slurm()
    environment = {key: os.environ[key] for key in os.environ if key not in foreign_variables()}
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert owner.stdout
    with owner, owner.stdout:
        folder = Path(owner.stdout.readline().strip())
        assert traces(folder)
        owner.send_signal(signal.SIGKILL)
    until(lambda: not folder.exists() and not traces(folder))


def test_a_reset_leaves_nothing(slurm: Cluster) -> None:
    stubborn = "trap '' TERM; while sleep 1; do :; done"
    job = run(slurm, stubborn, "-N8", "--exclusive")
    submit(slurm, stubborn, "-N8")
    submit(slurm, stubborn, "--hold")
    slurm.drain("n05")
    slurm.stop_controller()
    slurm.kill_node("n06")
    slurm.reset()
    assert not slurm.jobs()
    assert state(slurm, job) == "CANCELLED"
    assert slurm.states() == dict.fromkeys(slurm.nodes, "idle")
    assert not [pid for node in slurm.nodes for pid in slurm.processes(node)]


def test_a_user_brings_one_up_and_takes_it_down(tmp_path: Path) -> None:
    require_slurm()
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}

    def order(*words: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "tests.cluster", *words]
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env=environment,
            check=False,
            timeout=PATIENCE_S,
        )
        return done.returncode, done.stdout + done.stderr

    try:
        code, output = order("up", "--nodes", "2")
        assert code == 0, output
        assert order("up")[1] == output, "there is one at a time"
        assert "n[01-02]" in order("status")[1]
        folder = Path(output.splitlines()[0].removeprefix("export SLURM_CONF=")).parent
        assert traces(folder)
    finally:
        assert order("down")[0] == 0
    assert not traces(folder)
    assert not folder.exists()
    assert not list(tmp_path.iterdir())
    assert order("status")[0] == 1


def test_where_slurm_is_missing_the_packages_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.cluster.cluster.PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["tests.cluster", "up"])
    assert main() == 1
    assert "apt-get install --no-install-recommends slurmctld" in capsys.readouterr().err
