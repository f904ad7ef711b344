"""Figures over the API: offered, drawn, kept for many, and refused with a reason."""

from __future__ import annotations

import csv
from io import StringIO
from typing import get_args

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import FigureKind
from autotune.schemas.figures import FigureOffers
from server.store import Store
from tests.server.asking import created
from tests.server.entitled import entitled

SIGNATURES = {"svg": b"<svg", "png": b"\x89PNG", "pdf": b"%PDF"}


@pytest.fixture
def figures(finished: tuple[FastAPI, Campaign]) -> tuple[TestClient, str]:
    """A client, and where the figures of the finished campaign are."""
    app, campaign = finished
    client = entitled(app)
    return client, f"/api/v1/campaigns/{campaign.id}/figures"


def test_all_that_is_offered_can_be_had(figures: tuple[TestClient, str]) -> None:
    client, address = figures
    offers = FigureOffers.model_validate(client.get(address).json())
    assert [each.kind for each in offers.figures] == list(get_args(FigureKind))
    for each in offers.figures:
        if each.kind == "knobs":  # the simulator has none
            assert each.missing == "no knobs were tried: the campaign has none"
            continue
        assert not each.missing
        data = client.get(f"{address}/{each.kind}.json").json()
        assert client.get(f"{address}/{each.name}.json").json() == data
        rows = csv.reader(StringIO(client.get(f"{address}/{each.name}.csv").text, newline=""))
        assert [data["table"]["columns"], *data["table"]["rows"]] == list(rows)
        chart = client.get(f"{address}/{each.kind}.vega.json?scheme=dark").json()
        shared = {name: data[name] for name in ("kind", "title", "caption", "simulated", "table")}
        assert chart["usermeta"].items() >= shared.items()
        assert data["simulated"] is True
        assert any(chart["datasets"].values())


@pytest.mark.parametrize("picture", SIGNATURES)
def test_pictures_are_of_their_format(figures: tuple[TestClient, str], picture: str) -> None:
    client, address = figures
    answer = client.get(f"{address}/map.{picture}?num_nodes=4")
    assert answer.is_success, answer.text
    assert answer.content.startswith(SIGNATURES[picture])
    if picture == "svg":
        assert "(simulated)" in answer.text


def test_a_figure_that_is_not_there_says_why(client: TestClient, store: Store) -> None:
    campaign = created(store)
    answer = client.get(f"/api/v1/campaigns/{campaign.id}/figures/impact.json")
    assert answer.status_code == 404
    assert answer.json()["detail"] == (
        f"campaign {campaign.id} has no figure of impact: no trial has given a measurement yet"
    )
    assert client.get("/api/v1/campaigns/999/figures").status_code == 404


@pytest.mark.parametrize(
    ("file", "field", "valid"),
    [
        ("nonsense.json", "kind", "'memory_parts'"),
        ("map.gif", "picture", "'pdf'"),
        ("map.json?num_nodes=3", "num_nodes", "2, 4"),
        ("map.json?num_nodes=many", "num_nodes", ""),
        ("map.csv?x=precision", "x", "micro_batch_size"),
        ("map.svg?y=nonsense", "y", "pipeline_parallel"),
        ("parallel.csv?failed=no", "failed", "'hidden'"),
        ("trajectory.json?by=phase", "by", "'node_hours'"),
    ],
)
def test_what_is_refused_names_what_would_do(
    figures: tuple[TestClient, str], file: str, field: str, valid: str
) -> None:
    client, address = figures
    answer = client.get(f"{address}/{file}")
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["field"] == field
    assert valid in error["valid"]
