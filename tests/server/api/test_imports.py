"""Imports: stored whole or not at all, and what may not happen to them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.app import create_app
from server.settings import Settings
from server.store import Store
from server.store.leases import any_claimable, claim
from server.store.tables import CampaignRow
from server.store.users import usage_by_user
from tests.evaluators.run_log.logs import megatron
from tests.pace import QUICK
from tests.server.api.test_group import Group
from tests.server.conftest import opened_store
from tests.server.entitled import entitled

LAYOUT = {
    "tensor_parallel": 8,
    "pipeline_parallel": 1,
    "micro_batch_size": 4,
    "gradient_accumulation_steps": 8,
    "zero_stage": 1,
    "num_nodes": 4,
    "activation_checkpointing": "full",
}
RUN = {
    "strategy": LAYOUT,
    "iteration_time_s": 16.2,
    "peak_memory_gib": 50.0,
    "source": "runs.csv, row 2",
    "finished_at": "2026-05-01T12:00:00Z",
}
OOM = RUN | {
    "strategy": LAYOUT | {"micro_batch_size": 32},
    "state": "oom",
    "iteration_time_s": None,
    "peak_memory_gib": None,
    "source": "runs.csv, row 3",
}
CAMPAIGNS = "/api/v1/campaigns"


def imports(**changes: Any) -> dict[str, Any]:
    about = {"model": "gpt-22b", "machine": "dgx-a100", "adapter": "megatron-lm"}
    return {**about, "runs": [RUN, OOM], **changes}


def imported(client: TestClient, **changes: Any) -> dict[str, Any]:
    answer = client.post("/api/v1/imports", json=imports(**changes))
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_an_import_is_a_campaign_without_a_search(client: TestClient) -> None:
    made = imported(client, name="last year")
    assert (made["state"], made["reason"], made["trials"]) == ("imported", "from runs.csv", 2)
    assert (made["failures"], made["node_hours"], made["best_trial"]) == (1, 0.0, None)
    ran, failed = client.get(f"{CAMPAIGNS}/{made['id']}/trials").json()["items"]
    assert (ran["purpose"], ran["state"], ran["finished_at"]) == (
        *("imported", "ok"),
        "2026-05-01T12:00:00Z",
    )
    assert ran["metrics"]["iteration_time_s"] == 16.2
    assert (failed["state"], failed["phase_reason"]) == ("oom", "from runs.csv, row 3")
    listing = client.get(CAMPAIGNS, params={"search": "imported"}).json()["items"]
    assert [each["outcome"] for each in listing] == ["imported"]
    assert imported(client, name="again")["id"] == made["id"], "the same runs"
    assert imported(client, runs=[RUN])["id"] != made["id"]


@pytest.mark.each_database
def test_the_same_runs_at_once_are_one_campaign(settings: Settings, migrated: Path) -> None:
    opened_store(settings, migrated).close()
    with entitled(create_app(settings, pace=QUICK)) as client, ThreadPoolExecutor(8) as pool:
        numbers = {made["id"] for made in pool.map(lambda _: imported(client), range(8))}
    assert len(numbers) == 1


def test_nothing_may_be_done_with_it_but_deleting(client: TestClient, store: Store) -> None:
    number = imported(client)["id"]
    with store.transaction() as session:
        assert not any_claimable(session, among=CampaignRow.id > 0)
        assert claim(session, "runner", seconds=1.0, limit=9) == []
        assert usage_by_user(session, since=datetime.now(UTC))[0].node_hours == 0
    for action in ("pause", "resume", "cancel"):
        answer = client.post(f"{CAMPAIGNS}/{number}/{action}")
        assert answer.status_code == 409
        assert f"campaign {number} is imported and cannot be {action}" in answer.json()["detail"]
    answer = client.post(f"{CAMPAIGNS}/{number}/extend", json={"max_trials": 60})
    assert answer.status_code == 409
    answer = client.get(f"{CAMPAIGNS}/{number}/recommendation")
    assert answer.status_code == 404
    assert "was imported, and nothing is recommended from it" in answer.json()["detail"]
    answer = client.get("/api/v1/comparison", params={"ids": f"{number},{number + 1}"})
    assert "was imported, and nothing was searched" in answer.json()["detail"]
    assert {each["missing"] for each in figures(client, number)} == {"its runs were imported"}
    assert client.get(f"{CAMPAIGNS}/{number}/explanation").json()["strategies"] == []
    assert client.delete(f"{CAMPAIGNS}/{number}").status_code == 204


def figures(client: TestClient, number: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"{CAMPAIGNS}/{number}/figures").json()["figures"]
    return found


def test_metrics_count_imports_apart(client: TestClient) -> None:
    imported(client)
    text = client.get("/metrics").text
    assert 'autotune_trials{evaluator="imported",state="ok"} 1.0' in text
    assert 'evaluator="local"' not in text


def test_pages_say_imported(client: TestClient) -> None:
    number = imported(client)["id"]
    page = client.get(f"/campaigns/{number}").text
    assert "Imported: 2 runs" in page
    assert "real trials" not in page
    assert "Recommendation" not in page
    fragment = client.get(f"/campaigns/{number}/fragments/trials/1").text
    assert "From runs.csv, row 2" in fragment
    assert "measured" not in fragment
    assert client.get(f"/campaigns/{number}/fragments/explanation").status_code == 200
    assert "imported" in client.get("/").text


def test_a_campaign_starts_from_imported_runs(client: TestClient) -> None:
    number = imported(client, runs=[RUN])["id"]
    about = {"model": "gpt-175b", "machine": "dgx-a100", "adapter": "megatron-lm"}
    query = about | {"strategy": LAYOUT | {"pipeline_parallel": 4}}

    def sources(**changes: Any) -> list[int]:
        answer = client.post("/api/v1/predictions", json=query | changes)
        assert answer.status_code == 200, answer.text
        return [each["campaign_id"] for each in answer.json()["started_from"]]

    assert sources() == [number]
    assert sources(adapter="megatron-bridge") == [], "of another trainer"
    assert sources(machine="dgx-h100") == []
    assert client.delete(f"{CAMPAIGNS}/{number}").status_code == 204
    assert sources() == []


def test_a_diagnosis_expects_what_imported_runs_took(client: TestClient) -> None:
    log = megatron([6.0] * 9)

    def answer() -> dict[str, Any]:
        found: dict[str, Any] = client.post("/api/v1/diagnoses", content=log).json()
        return found

    before = answer()
    run = RUN | {"strategy": before["strategy"], "iteration_time_s": 6.0}
    ours = {"model": before["expected"]["model"], "machine": before["expected"]["machine"]}
    imported(client, **ours, runs=[run])
    after = answer()["expected"]["iteration_time_s"]
    assert abs(after - 6.0) < 0.5 * abs(before["expected"]["iteration_time_s"] - 6.0)


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        ({"iteration_time_s": 1e-3}, "runs.1.iteration_time_s", "is impossible"),
        ({"iteration_time_s": None}, "runs.1.iteration_time_s", "the run is ok"),
        ({"state": "oom"}, "runs.1.iteration_time_s", "the run is oom"),
        ({"strategy": LAYOUT | {"pipeline_parallel": 5}}, "runs.1.strategy", ""),
        ({"iteration_time_s": 1e9}, "runs.1.iteration_time_s", ""),
        ({"peak_memory_gib": -1.0}, "runs.1.peak_memory_gib", ""),
        ({"source": ""}, "runs.1.source", ""),
        ({"finished_at": "2026-05-01T12:00:00"}, "runs.1.finished_at", ""),
    ],
)
def test_a_wrong_run_refuses_the_whole(
    client: TestClient, changes: dict[str, Any], field: str, reason: str
) -> None:
    answer = client.post("/api/v1/imports", json=imports(runs=[RUN, RUN | changes]))
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["field"].startswith(field)
    assert reason in error["reason"]
    assert client.get(CAMPAIGNS).json()["items"] == []


def test_a_thousand_runs_are_one_request(client: TestClient) -> None:
    runs = [RUN | {"source": f"runs.csv, row {n}"} for n in range(1000)]
    assert imported(client, runs=runs)["trials"] == 1000
    answer = client.post("/api/v1/imports", json=imports(runs=[*runs, RUN]))
    assert answer.status_code == 422


def test_an_unknown_trainer_is_refused(client: TestClient) -> None:
    answer = client.post("/api/v1/imports", json=imports(adapter="none-such"))
    assert [each["field"] for each in answer.json()["errors"]] == ["adapter"]


@pytest.fixture
def group(sqlite_settings: Settings, migrated: Path) -> Iterator[Group]:
    opened_store(sqlite_settings, migrated).close()
    made = Group(sqlite_settings.model_copy(update={"group": True}))
    with made.client:
        yield made


def test_a_private_import_is_its_owners_alone(group: Group) -> None:
    assert group.ask("rob", "POST", "/imports", json=imports()).status_code == 403
    number = group.ask("sue", "POST", "/imports", json=imports(private=True)).json()["id"]
    assert group.ask("sam", "GET", f"/campaigns/{number}").status_code == 404
    public = group.ask("sam", "POST", "/imports", json=imports())
    assert public.status_code == 201
    assert public.json()["id"] != number, "another user's import of the same runs"
    assert group.ask("sue", "DELETE", f"/campaigns/{public.json()['id']}").status_code == 403
    assert group.ask("sam", "DELETE", f"/campaigns/{public.json()['id']}").status_code == 204
    assert group.ask("sue", "DELETE", f"/campaigns/{number}").status_code == 204
