"""The service as a process: it starts, it ends, and it leaves nothing behind."""

from __future__ import annotations

import fcntl
import signal
import subprocess
from pathlib import Path

import httpx2
import psutil
import pytest

from server.cli.failures import ExitCode
from server.service import address
from server.settings import Settings
from tests.cluster.ports import free_ports
from tests.patience import PATIENCE_S, until
from tests.server.cli.conftest import Autotune
from tests.serving import COMMAND, environment, serving


def test_ctrl_c_ends_it_cleanly(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        process = psutil.Process(served.process.pid)
        below = process.children(recursive=True)
        assert below, "its runner"
        # An open stream of events must not hold it up.
        with (
            httpx2.Client(base_url=served.url, headers=served.headers, trust_env=False) as client,
            client.stream("GET", "/api/v1/events") as stream,
        ):
            assert stream.is_success
            served.process.send_signal(signal.SIGINT)
            served.process.wait(PATIENCE_S)
        assert served.process.returncode == 0
        _, alive = psutil.wait_procs(below, timeout=PATIENCE_S)
        assert not alive
        assert served.process.stderr is not None
        assert "Traceback" not in served.process.stderr.read()


def test_its_runner_dies_with_it(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        below = psutil.Process(served.process.pid).children(recursive=True)
        served.process.kill()
        _, alive = psutil.wait_procs(below, timeout=PATIENCE_S)
        assert not alive


def test_without_a_runner_and_a_runner_of_its_own(alone: Autotune, tmp_path: Path) -> None:
    with serving(tmp_path, "--no-runner") as served:
        assert not psutil.Process(served.process.pid).children()
        runner = subprocess.Popen(
            [*COMMAND, "runner", "--data-dir", str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        assert runner.stderr is not None
        assert str(tmp_path) in runner.stderr.readline()
        _until_locked(tmp_path / "autotune.db.runner.lock")
        second = alone("runner", "--data-dir", str(tmp_path))
        assert second.code == 1
        assert "already works on the database" in second.err
        runner.terminate()
        _, log = runner.communicate(timeout=PATIENCE_S)
        assert runner.returncode == 0, log


def test_submit_waits_for_a_service_that_is_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    monkeypatch.setattr("server.cli.options.STARTS_WITHIN_S", PATIENCE_S)
    monkeypatch.setenv("AUTOTUNE_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AUTOTUNE_DATA_DIR", str(tmp_path))
    folder = ("--port", str(port), "--data-dir", str(tmp_path))
    with subprocess.Popen(
        [*COMMAND, "serve", *folder], stderr=subprocess.DEVNULL, env=environment()
    ) as serve:
        question = ("--model", "gpt-1.4b", "--machine", "frontier", "--max-trials", "1")
        ran = Autotune().done("submit", *question, "--json")
        serve.terminate()
    assert ran.json()["id"] == 1
    first, *_ = ran.err.splitlines()
    assert first.endswith(f"s for a service to start at http://127.0.0.1:{port}")


def test_submit_does_not_wait_for_long(alone: Autotune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.cli.options.STARTS_WITHIN_S", 0.5)
    ran = alone("submit", "--model", "gpt-1.4b", "--machine", "frontier")
    assert ran.code == ExitCode.UNREACHABLE
    first, last = ran.err.splitlines()
    assert first == "waits 0.5 s for a service to start at http://127.0.0.1:9"
    assert "no service of yours answers at http://127.0.0.1:9" in last


def _until_locked(path: Path) -> None:
    def locked() -> bool:
        if not path.exists():
            return False
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    until(locked, "the runner takes its lock")


def test_addresses(tmp_path: Path) -> None:
    assert address(Settings(data_dir=tmp_path, host="127.0.0.1", port=1)) == "http://127.0.0.1:1"
    assert address(Settings(data_dir=tmp_path, host="::1", port=1)) == "http://[::1]:1"
