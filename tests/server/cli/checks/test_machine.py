"""Whether this machine has what the service needs, in words."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx2

from server.cli.checks.machine import data_folder, nearest_existing, port
from server.cli.port import listening_socket
from server.settings import Settings
from tests.serving import Served


def test_a_data_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check = data_folder(Settings(data_dir=tmp_path / "file" / "inner"))
    assert check.status == "fail"
    assert check.advice
    assert nearest_existing(tmp_path / "file" / "inner") == tmp_path / "file"


def test_a_port_in_use_is_a_warning(tmp_path: Path) -> None:
    with listening_socket("127.0.0.1", 0) as taken:
        settings = Settings(data_dir=tmp_path, port=taken.getsockname()[1])
        # Whoever has it closes each connection with no answer.
        thread = threading.Thread(target=lambda: taken.accept()[0].close())
        thread.start()
        assert port(settings).status == "warn"
        thread.join()
    assert port(settings).status == "ok"


def test_a_service_at_the_port_is_fine(service: Served, tmp_path: Path) -> None:
    number = httpx2.URL(service.url).port
    assert number is not None
    check = port(Settings(data_dir=tmp_path, port=number))
    assert (check.status, check.found) == ("ok", f"a service runs at {service.url}")
