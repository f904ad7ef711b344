from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from autotune.schemas.shapes import MachineShape, ModelShape
from tests.server.calibrations import STRATEGY

SUBJECT = {"model": "gpt-22b", "machine": "frontier"}
QUERY = SUBJECT | {"nodes": 2}


@pytest.fixture
def client(shared_client: TestClient) -> TestClient:
    return shared_client


def test_every_name_of_the_catalog_can_be_read(client: TestClient) -> None:
    for name in client.get("/api/v1/models").json():
        assert ModelShape.model_validate(client.get(f"/api/v1/models/{name}").json()).name == name
    for name in client.get("/api/v1/machines").json():
        found = MachineShape.model_validate(client.get(f"/api/v1/machines/{name}").json())
        assert found.gpus_per_node >= 1
    assert "table-v" in client.get("/api/v1/spaces").json()
    assert client.get("/api/v1/models/13B").json()["num_layers"] == 40


def test_an_unknown_name_is_told_with_the_nearest(client: TestClient) -> None:
    for path, near in (("models/gpt-176b", "gpt-175b"), ("machines/fronteer", "frontier")):
        answer = client.get(f"/api/v1/{path}")
        assert answer.status_code == 404
        assert near in answer.json()["detail"]


def test_a_path_is_no_name(client: TestClient) -> None:
    """The service reads no file that a caller names."""
    for model in ("/etc/passwd", "../../pyproject.toml", "config.json"):
        answer = client.post("/api/v1/spaces", json=QUERY | {"model": model})
        assert answer.status_code == 422


def test_the_program_of_a_profile_decides_what_is_legal(client: TestClient) -> None:
    choice = {"evaluator": "slurm", "slurm": {"profile": "frontier"}}
    strategy = STRATEGY | {"tensor_parallel": 2, "sequence_parallel": True}
    asked = SUBJECT | {"strategy": strategy}
    assert client.post("/api/v1/predictions", json=asked).json()["legal"]
    found = client.post("/api/v1/predictions", json=asked | choice).json()
    assert [reason["rule"] for reason in found["reasons"]] == ["program"]
    assert not found["legal"]
    free, bound = (
        client.post("/api/v1/spaces", json=QUERY | more).json()["dimensions"]["sequence_parallel"]
        for more in ({}, choice)
    )
    assert (free, bound) == ([False, True], [False])
    for path in ("spaces", "sweeps"):
        answer = client.post(f"/api/v1/{path}", json=QUERY | {"evaluator": "slurm"})
        assert answer.status_code == 422
        assert [error["field"] for error in answer.json()["errors"]] == ["slurm.profile"]


@pytest.mark.parametrize("name", ["micro_batch_size", "gradient_accumulation_steps", "num_nodes"])
def test_a_number_beyond_all_strategies_is_refused(client: TestClient, name: str) -> None:
    """Before it overflows anywhere."""
    for value in (1_000_001, 10**30):
        strategy = STRATEGY | {name: value}
        answer = client.post("/api/v1/predictions", json=SUBJECT | {"strategy": strategy})
        assert answer.status_code == 422
        [error] = answer.json()["errors"]
        assert (error["field"], error["value"]) == (f"strategy.{name}", value)
        assert "1000000" in error["reason"]
