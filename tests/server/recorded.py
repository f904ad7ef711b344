"""One finished campaign for all tests that only read one, whatever face they ask."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from autotune.schemas.campaigns import Campaign
from server.app import create_app
from server.settings import Settings
from tests.pace import QUICK
from tests.server.asking import body
from tests.server.entitled import entitled
from tests.server.running import Running

NUMBER = 1


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The data folder of a service that ran the campaign; a service of tests has a copy.

    Recorded once for all processes of tests.
    """
    own = tmp_path_factory.getbasetemp()
    folder = (own if worker_id == "master" else own.parent) / "recorded"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        flock(lock, LOCK_EX)
        if not (folder / "data").exists():
            _record(folder / "recording")
            (folder / "recording").rename(folder / "data")
    return folder / "data"


def _record(folder: Path) -> None:
    request = body(name="shared", budget={"max_trials": 5, "train_tokens": 300e9})
    with ran(Settings(data_dir=folder), request):
        pass


@contextmanager
def ran(settings: Settings, request: Mapping[str, Any]) -> Iterator[tuple[TestClient, str]]:
    """A service whose runner has brought a campaign to its end, and the campaign's address."""
    app = create_app(settings, pace=QUICK)
    running = Running(settings, app.state.store)
    with entitled(app) as client, closing(running.runner):
        answer = client.post("/api/v1/campaigns", json=request)
        running.until_state(Campaign.model_validate(answer.json()), "done")
        yield client, answer.headers["Location"]


def copied(recorded: Path, folder: Path) -> Path:
    shutil.copytree(recorded, folder / "data")
    return folder / "data"
