"""The real service, started as a user starts it, for tests that talk to it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.patience import PATIENCE_S

COMMAND = [sys.executable, "-m", "server.cli"]


@dataclass(frozen=True, kw_only=True)
class Served:
    url: str
    data_dir: Path
    process: subprocess.Popen[str]

    @property
    def token_file(self) -> Path:
        return self.data_dir / "service.json"

    @property
    def record(self) -> dict[str, Any]:
        """What it tells its user's own programs."""
        record: dict[str, Any] = json.loads(self.token_file.read_text())
        return record

    @property
    def headers(self) -> dict[str, str]:
        """What a program sends that knows the token."""
        return {"Authorization": f"Bearer {self.record['token']}"}


def environment() -> dict[str, str]:
    """This process's, without settings of the developer's own."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith("AUTOTUNE_")}
    return plain | {"OMP_NUM_THREADS": "1", "COLUMNS": "160"}


@contextmanager
def serving(data_dir: Path, *options: str) -> Iterator[Served]:
    """`autotune serve` on a free port, ready to answer; ended at the end.

    Its configuration and its profiles lie in the data folder, too.
    """
    process = subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", "--data-dir", str(data_dir), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment() | {"AUTOTUNE_CONFIG": f"{data_dir}/config.toml"},
        text=True,
    )
    assert process.stderr is not None
    try:
        first_line = process.stderr.readline()
        found = re.search(r"(https?://|unix:)\S+", first_line)
        assert found, first_line
        served = Served(url=found[0], data_dir=data_dir, process=process)
        through = httpx2.HTTPTransport(uds=served.record["socket"], verify=False)
        with httpx2.Client(base_url="http://localhost", transport=through) as client:
            assert client.get("/readyz").is_success
        yield served
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
