"""A database of the version before, whose trainer had expert parallelism of its own."""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from server.app import create_app
from server.settings import Settings
from tests.server.entitled import entitled

DUMP = Path(__file__).parent / "recorded" / "expert_parallel_of_its_own.sql"
CAMPAIGN = "/api/v1/campaigns/1"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with closing(sqlite3.connect(tmp_path / "autotune.db")) as database:
        database.executescript(DUMP.read_text())
    with entitled(create_app(Settings(data_dir=tmp_path))) as opened:
        yield opened


def test_what_was_a_trainer_s_own_is_the_dimension_of_all(client: TestClient) -> None:
    trials = client.get(f"{CAMPAIGN}/trials").json()["items"]
    assert [trial["strategy"].get("expert_parallel", 1) for trial in trials] == [1, 2]
    assert all("settings" not in trial["strategy"] for trial in trials)
    falling = client.get(f"{CAMPAIGN}/trials?sort=-expert_parallel").json()["items"]
    assert [trial["number"] for trial in falling] == [2, 1]
    found = client.get(f"{CAMPAIGN}/recommendation").json()
    assert found["best"]["strategy"]["expert_parallel"] == 2
    campaign = client.get(CAMPAIGN).json()
    assert campaign["best_objective"] == found["best"]["metrics"]["tokens_per_s"]
    assert campaign["request"]["space"]["expert_parallel"] == [1, 2]
    rows = csv.DictReader(client.get(f"{CAMPAIGN}/trials.csv").text.splitlines())
    assert [row["expert_parallel"] for row in rows] == ["1", "2"]
    for answer in ("explanation", "figures/impact.json", "figures/parallel.json"):
        assert client.get(f"{CAMPAIGN}/{answer}").status_code == 200
    assert "EP 2" in client.get("/campaigns/1").text
