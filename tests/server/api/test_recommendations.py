from __future__ import annotations

import io
import zipfile

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from autotune.schemas.campaigns import Campaign
from autotune.schemas.recommendations import Recommendation
from server.store import Store
from tests.server.asking import created
from tests.server.entitled import entitled

FILES = {
    "launch.sbatch",
    "megatron_deepspeed_args.txt",
    "ds_config.json",
    "megatron_lm_args.txt",
    "megatron_lm.sh",
    "nemo.yaml",
}


@pytest.fixture
def client(finished: tuple[FastAPI, Campaign]) -> TestClient:
    return entitled(finished[0])


@pytest.fixture
def at(finished: tuple[FastAPI, Campaign]) -> str:
    return f"/api/v1/campaigns/{finished[1].id}"


def test_a_finished_campaign_has_a_recommendation(client: TestClient, at: str) -> None:
    found = Recommendation.model_validate(client.get(f"{at}/recommendation").json())
    assert not found.provisional
    assert found.simulated
    assert found.best.confirmed
    assert set(found.artefacts) == FILES
    rates = [one.metrics.tokens_per_s for one in found.runners_up if not one.confirmed]
    assert rates == sorted(rates, reverse=True)


def test_a_campaign_without_a_successful_trial_has_none(
    client: TestClient, finished: tuple[FastAPI, Campaign]
) -> None:
    store: Store = finished[0].state.store
    other = created(store)
    for path in ("recommendation", "artefacts/launch.sbatch", "artefacts.zip"):
        answer = client.get(f"/api/v1/campaigns/{other.id}/{path}")
        assert answer.status_code == 404
        assert "no trial has succeeded" in answer.json()["detail"]


def test_each_file_is_downloaded_by_its_name(client: TestClient, at: str) -> None:
    found = client.get(f"{at}/recommendation").json()
    for name in found["artefacts"]:
        answer = client.get(f"{at}/artefacts/{name}")
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert name in answer.headers["Content-Disposition"]
        assert answer.text.strip()


def test_the_archive_holds_the_same_files_and_is_the_same_each_time(
    client: TestClient, at: str
) -> None:
    answer = client.get(f"{at}/artefacts.zip")
    assert answer.headers["Content-Type"] == "application/zip"
    archive = zipfile.ZipFile(io.BytesIO(answer.content))
    names = {name.rpartition("/")[2]: name for name in archive.namelist()}
    assert set(names) == FILES
    for name, path in names.items():
        assert archive.read(path).decode() == client.get(f"{at}/artefacts/{name}").text
    assert client.get(f"{at}/artefacts.zip").content == answer.content


def test_other_ranks_have_files_of_their_own(client: TestClient, at: str) -> None:
    first, second = (
        client.get(f"{at}/artefacts/megatron_deepspeed_args.txt", params={"rank": rank}).text
        for rank in (1, 2)
    )
    assert first != second


def test_a_rank_or_a_file_that_is_not_there_is_told(client: TestClient, at: str) -> None:
    beyond = client.get(f"{at}/artefacts.zip", params={"rank": 50})
    assert beyond.status_code == 422
    assert beyond.json()["errors"][0]["field"] == "rank"
    unknown = client.get(f"{at}/artefacts/run.sh")
    assert unknown.status_code == 404
    assert "launch.sbatch" in unknown.json()["detail"]


def test_the_archive_of_another_trainer(client: TestClient, at: str) -> None:
    for offer in Recommendation.model_validate(client.get(f"{at}/recommendation").json()).trainers:
        answer = client.get(f"{at}/artefacts.zip", params={"trainer": offer.name})
        if offer.supported:
            names = zipfile.ZipFile(io.BytesIO(answer.content)).namelist()
            assert [name.partition("/")[2] for name in names] == ["launch.sbatch", "train_rank.sh"]
            assert names[0].endswith(f"-rank-1-{offer.name}/launch.sbatch")
        else:
            (error,) = answer.json()["errors"]
            assert (answer.status_code, error["field"]) == (422, "trainer")
            assert error["reason"] == offer.reason
    assert client.get(f"{at}/artefacts.zip", params={"trainer": "keras"}).status_code == 422
