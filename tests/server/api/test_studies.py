"""Scaling studies over REST: asked, run by the simulator from start to end, and told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.api.campaigns import EXAMPLES
from server.app import create_app
from server.runner.runner import Runner
from server.settings import Settings
from tests.pace import QUICK
from tests.server.entitled import entitled

CAMPAIGNS = "/api/v1/campaigns"
STUDY: dict[str, Any] = EXAMPLES["scaling study"]["value"]
STRATEGY: dict[str, Any] = STUDY["study"]["strategies"][0]


def study(**changes: Any) -> dict[str, Any]:
    return STUDY | {"study": STUDY["study"] | changes}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, dict[str, Any]]]:
    """175B on Frontier, strongly and weakly, from 128 to 512 GCDs, with one number of nodes that
    cannot be; it is done."""
    settings = Settings(data_dir=tmp_path_factory.mktemp("data"))
    app = create_app(settings, pace=QUICK)
    runner = Runner(settings, app.state.store, pace=QUICK)
    asked = study(kinds=["strong", "weak"], nodes=[64, 16, 20, 32])
    with entitled(app) as client:
        campaign = client.post(CAMPAIGNS, json=asked).json()
        address = f"{CAMPAIGNS}/{campaign['id']}"
        while client.get(address).json()["state"] != "done":
            runner.round()
        runner.close()
        yield client, client.get(address).json()


def test_all_that_was_asked_is_measured_the_fewest_nodes_first(
    ran: tuple[TestClient, dict[str, Any]],
) -> None:
    client, campaign = ran
    trials = client.get(f"{CAMPAIGNS}/{campaign['id']}/trials").json()["items"]
    assert [trial["strategy"]["num_nodes"] for trial in trials] == [16, 32, 32, 64, 64]
    assert {trial["purpose"] for trial in trials} == {"study"}
    assert {trial["state"] for trial in trials} == {"ok"}
    assert all(trial["metrics"]["measured"] for trial in trials)
    batches = {trial["metrics"]["global_batch_size"] for trial in trials}
    assert len(batches) == 3, "the same one, twice it, four times it"
    assert all(trial["expected"]["node_hours"] > 0 for trial in trials)
    assert campaign["reason"] == "All trials of the study have run."
    assert (campaign["trials"], campaign["confirmations"]) == (5, 0)
    assert campaign["request"]["budget"]["max_trials"] == 5
    assert campaign["best_objective"] is None


def test_its_figure_tells_what_was_measured(ran: tuple[TestClient, dict[str, Any]]) -> None:
    client, campaign = ran
    address = f"{CAMPAIGNS}/{campaign['id']}"
    trials = client.get(f"{address}/trials").json()["items"]
    rates = {
        (trial["strategy"]["num_nodes"], trial["metrics"]["global_batch_size"]): trial["metrics"][
            "tokens_per_s_per_gpu"
        ]
        for trial in trials
    }
    for kind in ("strong", "weak"):
        figure = client.get(f"{address}/figures/scaling.json", params={"scaling": kind}).json()
        [series] = figure["series"]
        assert [point["num_nodes"] for point in series["points"]] == [16, 32, 64]
        assert all(point["measured"] for point in series["points"])
        most = series["points"][-1]
        assert most["efficiency_low"] < most["efficiency"] < most["efficiency_high"]
        kept = rates[64, most["global_batch_size"]] / rates[16, 640]
        assert most["efficiency"] == pytest.approx(kept)
        assert "simulated (" in figure["caption"]
        assert "does not divide 160 GPUs" in series["omitted"]["20"]
        assert figure["table"]["rows"][0][-1] == "simulated"
    offers = client.get(f"{address}/figures").json()["figures"]
    had = {each["kind"] for each in offers if not each["missing"]}
    assert had == {"scaling", "calibration"}
    told = client.get(f"{address}/scaling").json()
    assert STRATEGY.items() <= told["strategy"].items()
    assert [series["kind"] for series in told["series"]] == ["strong", "weak"]


def test_a_study_gives_no_best_no_comparison_and_can_be_repeated(
    ran: tuple[TestClient, dict[str, Any]],
) -> None:
    client, campaign = ran
    for name in ("recommendation", "artefacts.zip", "explanation"):
        answer = client.get(f"{CAMPAIGNS}/{campaign['id']}/{name}")
        assert answer.status_code == 404
        assert "is a scaling study" in answer.json()["detail"]
    other = client.post(CAMPAIGNS, json=EXAMPLES["simulated"]["value"]).json()
    answer = client.get("/api/v1/comparison", params={"ids": f"{campaign['id']},{other['id']}"})
    assert answer.status_code == 422
    assert "seeks no best" in answer.json()["detail"]
    again = client.post(CAMPAIGNS, json=campaign["request"]).json()
    assert again["request"] == campaign["request"]


def test_a_dry_run_says_what_would_be_measured_and_what_cannot(shared_client: TestClient) -> None:
    asked = study(nodes=[16, 20, 32]) | {"budget": {"max_node_hours": 5}}
    answer = shared_client.post(CAMPAIGNS, params={"dry_run": True}, json=asked).json()
    trials = answer["study"]["trials"]
    assert [trial["strategy"]["num_nodes"] for trial in trials] == [16, 32]
    assert answer["node_hours_expected"] == pytest.approx(
        sum(trial["node_hours"] for trial in trials)
    )
    assert answer["trials_affordable"] == 1
    [omitted] = answer["study"]["omitted"]
    assert omitted.startswith("not on 20 nodes with the same batch: ")


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        ({"study": {"nodes": [16, 32]}}, "study.strategies", "needs a layout to measure"),
        ({"study": {"like": 99, "nodes": [16, 32]}}, "study.like", "no such campaign"),
        (study(nodes=[16, 20]), "study.nodes", "can run on 16 nodes alone"),
        (study(nodes=[17, 20]), "study.nodes", "on none of these nodes"),
        (study(nodes=[16, 20_000]), "study.nodes", "has 9856 nodes"),
        ({"space": {"preset": "table-v"}}, "space", "has no search"),
        ({"baseline": "tp=8,pp=16"}, "baseline", "has no search"),
        ({"pool_nodes": 32}, "pool_nodes", "64 nodes at once"),
    ],
)
def test_what_cannot_be_studied_is_refused(
    shared_client: TestClient, changes: dict[str, Any], field: str, reason: str
) -> None:
    answer = shared_client.post(CAMPAIGNS, json=STUDY | changes)
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["field"] == field
    assert reason in error["reason"]
