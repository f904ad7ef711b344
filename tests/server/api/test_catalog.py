from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from autotune.schemas.catalog import AdapterSummary, ProfileSummary
from search_spaces.fields import checked
from search_spaces.machine import Machine
from search_spaces.transformer import Transformer
from server.catalog import usable_adapters
from server.settings import Settings
from tests.evaluators.adapter.samples import my_script

SUBJECT = {"model": "gpt-22b", "machine": "frontier"}
QUERY = SUBJECT | {"nodes": 2}

STRATEGY: dict[str, Any] = {
    "tensor_parallel": 1,
    "pipeline_parallel": 8,
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 320,
    "zero_stage": 1,
    "num_nodes": 2,
}


PROFILES = "/api/v1/profiles"
MINE = """
description = "ours"
machine = "frontier"

[slurm]
account = "abc123"

[environment.variables]
NCCL_DEBUG = "WARN"
"""


def test_every_name_of_the_catalog_can_be_read(shared_client: TestClient) -> None:
    for name in shared_client.get("/api/v1/models").json():
        assert (
            checked(
                Transformer, shared_client.get(f"/api/v1/models/{name}").json(), prefix="model"
            ).name
            == name
        )
    for name in shared_client.get("/api/v1/machines").json():
        found = checked(
            Machine, shared_client.get(f"/api/v1/machines/{name}").json(), prefix="machine"
        )
        assert found.gpus_per_node >= 1
    assert "table-v" in shared_client.get("/api/v1/spaces").json()
    assert shared_client.get("/api/v1/models/13B").json()["num_layers"] == 40


def test_an_unknown_name_is_refused_with_the_nearest(shared_client: TestClient) -> None:
    for path, near in (("models/gpt-176b", "gpt-175b"), ("machines/fronteer", "frontier")):
        answer = shared_client.get(f"/api/v1/{path}")
        assert answer.status_code == 404
        assert near in answer.json()["detail"]


def test_a_path_is_no_name(shared_client: TestClient) -> None:
    """The service reads no file that a caller names."""
    for model in ("/etc/passwd", "../../pyproject.toml", "config.json"):
        answer = shared_client.post("/api/v1/plans", json=QUERY | {"model": model})
        assert answer.status_code == 422


def test_the_program_of_a_profile_decides_what_is_legal(shared_client: TestClient) -> None:
    choice = {"evaluator": "slurm", "slurm": {"profile": "frontier"}}
    strategy = STRATEGY | {"tensor_parallel": 2, "sequence_parallel": True}
    question = SUBJECT | {"strategy": strategy}
    assert shared_client.post("/api/v1/predictions", json=question).json()["legal"]
    found = shared_client.post("/api/v1/predictions", json=question | choice).json()
    assert [reason["rule"] for reason in found["reasons"]] == ["program"]
    assert not found["legal"]
    free, bound = (
        shared_client.post("/api/v1/plans", json=QUERY | more).json()["dimensions"][
            "sequence_parallel"
        ]
        for more in ({}, choice)
    )
    assert (free, bound) == ([False, True], [False])
    answer = shared_client.post("/api/v1/plans", json=QUERY | {"evaluator": "slurm"})
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["slurm.profile"]


@pytest.mark.parametrize("name", ["micro_batch_size", "gradient_accumulation_steps", "num_nodes"])
def test_a_number_beyond_all_strategies_is_refused(shared_client: TestClient, name: str) -> None:
    """Before it overflows anywhere."""
    for value in (1_000_001, 10**30):
        strategy = STRATEGY | {name: value}
        answer = shared_client.post("/api/v1/predictions", json=SUBJECT | {"strategy": strategy})
        assert answer.status_code == 422
        [error] = answer.json()["errors"]
        assert (error["field"], error["value"]) == (f"strategy.{name}", value)
        assert "1000000" in error["reason"]


def listed(client: TestClient) -> dict[str, ProfileSummary]:
    found = [ProfileSummary.model_validate(one) for one in client.get(PROFILES).json()]
    return {profile.name: profile for profile in found}


def test_ready_profiles_are_listed_and_can_be_read(shared_client: TestClient) -> None:
    found = listed(shared_client)
    assert {"frontier", "generic"} <= set(found)
    for name, summary in found.items():
        assert summary.source == ""
        assert summary.problem == ""
        detail = ProfileSummary.model_validate(shared_client.get(f"{PROFILES}/{name}").json())
        assert (detail.name, detail.machine) == (name, summary.machine)
        assert (detail.content or {})["slurm"].keys() >= {"account", "partition"}


def test_own_profiles_are_listed_with_their_file_or_their_error(
    client: TestClient, sqlite_settings: Settings
) -> None:
    folder = sqlite_settings.profiles_dir
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(MINE)
    (folder / "generic.toml").write_text('description = "instead of the ready one"')
    (folder / "broken.toml").write_text("[slurm]\npartitoin = 'batch'")
    found = listed(client)
    assert found["mine"].description == "ours"
    assert found["mine"].source == str(folder / "mine.toml")
    assert found["generic"].description == "instead of the ready one"
    assert "partition" in found["broken"].problem
    assert found["frontier"].problem == ""
    detail = client.get(f"{PROFILES}/mine").json()
    assert detail["content"]["slurm"]["account"] == "abc123"
    assert detail["content"]["environment"]["variables"] == {"NCCL_DEBUG": "WARN"}
    answer = client.get(f"{PROFILES}/broken")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "slurm.partitoin"
    for name in ("fronteer", "..%2Ffrontier", "%2Fetc%2Fpasswd", "mine.toml"):
        assert client.get(f"{PROFILES}/{name}").status_code == 404, name


def test_adapters_are_listed_without_what_they_run(
    client: TestClient, sqlite_settings: Settings
) -> None:
    folder = sqlite_settings.adapters_dir
    folder.mkdir(parents=True)
    my_script(folder)
    (folder / "broken.toml").write_text('command = ["secret-program"]\nread_it = 1\n')
    answer = client.get("/api/v1/adapters")
    found = {each["name"]: AdapterSummary.model_validate(each) for each in answer.json()}
    assert "secret-program" not in answer.text
    assert "train.py" not in answer.text
    assert {"megatron-lm", "torchtitan-0.2", "my-script", "broken"} <= set(found)
    assert found["my-script"].own
    assert found["my-script"].dimensions[:3] == (
        "tensor_parallel",
        "pipeline_parallel",
        "micro_batch_size",
    )
    assert "flash_attention" not in found["my-script"].dimensions
    ready = found["torchtitan-0.2"]
    assert (ready.own, ready.evidence) == (False, "trained")
    assert ready.checked
    assert "read_it: unknown" in found["broken"].problem
    usable = [each.name for each in usable_adapters(folder)]
    assert usable[0] == "my-script"
    assert {name for name in found if name.startswith("template")} == {"template", "template-hydra"}
    assert set(found) - set(usable) == {"template", "template-hydra", "broken"}
