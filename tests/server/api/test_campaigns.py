from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import event

from autotune.schemas.calibrations import EarlierObservation
from autotune.schemas.campaigns import Campaign, CampaignPage, StartWorth
from autotune.schemas.choices import CampaignState
from autotune.schemas.plans import CampaignPlan
from search_spaces.catalog import load_model
from search_spaces.fields import as_table
from server.settings import Settings
from server.store import Store
from server.store.campaigns import campaign_row, change_state
from server.store.history import keep_start, note_worth
from tests.server.asking import STRATEGY, body, created, with_trials
from tests.server.entitled import entitled

CAMPAIGNS = "/api/v1/campaigns"


def test_a_created_campaign_is_found_at_its_address(client: TestClient) -> None:
    answer = client.post(CAMPAIGNS, json=body())
    assert answer.status_code == 201
    campaign = Campaign.model_validate(answer.json())
    assert campaign.state == "queued"
    assert campaign.simulated
    again = client.get(answer.headers["Location"])
    assert again.status_code == 200
    assert Campaign.model_validate(again.json()) == campaign


def test_a_model_and_a_machine_as_shapes_are_stored_whole(client: TestClient) -> None:
    rack = client.get("/api/v1/machines/gb300-nvl72").json()
    assert (rack["fast_domain"], rack["peaks_tflops"]["nvfp4"]) == (72, 15000)
    for name in ("deepseek-v3", "gpt-oss-20b", "nemotron-h-8b", "llama-3-8b"):
        shape = client.get(f"/api/v1/models/{name}").json()
        kinds = {"experts", "latent_attention", "mtp_layers", "window_layers", "mamba"}
        assert bool(kinds & set(shape)) is (name != "llama-3-8b")
        request = body(model=shape, machine=rack, nodes=64, pool_nodes=64, space={})
        campaign = client.post(CAMPAIGNS, json=request).json()
        assert (campaign["model"], campaign["machine"]) == (shape, rack)
        listed = CampaignPage.model_validate(client.get(CAMPAIGNS).json()).items[0]
        assert as_table(listed.model) == shape
        assert as_table(listed.machine) == rack
        assert listed.model == load_model(name)


def test_a_campaign_says_what_it_started_from(client: TestClient, store: Store) -> None:
    first = created(store)
    address = client.post(CAMPAIGNS, json=body()).headers["Location"]
    assert client.get(address).json()["started_from"] is None
    later = Campaign.model_validate(client.get(address).json())
    shown = EarlierObservation(
        model=later.model,
        strategy=STRATEGY,
        fitted=False,
        campaign_id=first.id,
        versions={},
        age_days=0.0,
    )
    with store.transaction() as session:
        row = campaign_row(session, later.id)
        keep_start(session, row, [shown])
        note_worth(row, StartWorth(trials=2, error_without=0.5, error_with=0.1))
        change_state(session, row, CampaignState.RUNNING)
    start = {"campaign_id": first.id, "name": first.name, "trials": 1}
    assert client.get(address).json()["started_from"] == [start | {"deleted": False}]
    client.post(f"{CAMPAIGNS}/{first.id}/cancel")
    assert client.delete(f"{CAMPAIGNS}/{first.id}").is_success
    document = client.get(address).json()
    assert document["started_from"] == [start | {"deleted": True}]
    assert document["start_worth"] == {"trials": 2, "error_without": 0.5, "error_with": 0.1}


def test_a_dry_run_counts_and_stores_nothing(client: TestClient) -> None:
    answer = client.post(CAMPAIGNS, params={"dry_run": True}, json=body())
    assert answer.status_code == 200
    found = CampaignPlan.model_validate(answer.json())
    assert found.raw > found.legal >= found.fitting > 0
    assert found.cost is not None
    assert found.cost.trials == 6
    assert found.baseline is not None
    assert found.baseline.strategy.tensor_parallel == 2
    assert client.get(CAMPAIGNS).json() == {"items": [], "next": None}


def test_a_repeated_request_creates_one_campaign(client: TestClient) -> None:
    headers = {"Idempotency-Key": "8e03978e-40d5-43e8-bc93-6894a57f9324"}
    refused = client.post(CAMPAIGNS, json=body(model="nope"), headers=headers)
    assert refused.status_code == 422, "which does not use the key up"
    first = client.post(CAMPAIGNS, json=body(), headers=headers)
    second = client.post(CAMPAIGNS, json=dict(reversed(body().items())), headers=headers)
    assert first.status_code == second.status_code == 201
    assert first.json() == second.json()
    assert first.headers["Location"] == second.headers["Location"]
    assert len(client.get(CAMPAIGNS).json()["items"]) == 1
    other = client.post(CAMPAIGNS, json=body(nodes=2, pool_nodes=2), headers=headers)
    assert other.status_code == 409
    assert other.json()["errors"][0]["field"] == "Idempotency-Key"


def test_one_key_many_times_at_once_creates_one_campaign(client: TestClient) -> None:
    def post(_: int) -> tuple[int, int]:
        answer = client.post(CAMPAIGNS, json=body(), headers={"Idempotency-Key": "k"})
        return answer.status_code, answer.json()["id"]

    with ThreadPoolExecutor(8) as pool:
        answers = set(pool.map(post, range(8)))
    assert answers == {(201, 1)}


def test_campaigns_are_listed_in_pages(client: TestClient, store: Store) -> None:
    ids = [created(store).id for _ in range(3)]
    first = CampaignPage.model_validate(client.get(CAMPAIGNS, params={"limit": 2}).json())
    second = client.get(CAMPAIGNS, params={"limit": 2, "cursor": first.next}).json()
    assert [c.id for c in first.items] + [c["id"] for c in second["items"]] == ids[::-1]
    assert second["next"] is None
    assert client.get(CAMPAIGNS, params={"state": "done"}).json()["items"] == []


def test_campaign_pause_resume_extend_cancel_and_delete(
    client: TestClient, store: Store, sqlite_settings: Settings
) -> None:
    campaign = created(store)
    trial = with_trials(store, campaign, 1)[0]
    directory = sqlite_settings.trial_dir(trial.token)
    directory.mkdir(parents=True)
    (directory / "trial.log").write_text("a log")
    at = f"{CAMPAIGNS}/{campaign.id}"
    assert client.post(f"{at}/pause").json()["state"] == "paused"
    assert client.post(f"{at}/resume").json()["state"] == "queued"
    extended = client.post(f"{at}/extend", json={"max_trials": 50})
    assert extended.json()["request"]["budget"]["max_trials"] == 50
    assert client.post(f"{at}/cancel").json()["state"] == "cancelled"
    assert client.post(f"{at}/resume").status_code == 409
    assert client.delete(at).status_code == 409, "one of its trials is still pending"
    with store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE trials SET state = 'cancelled'")
    answer = client.delete(at)
    assert answer.status_code == 204
    assert answer.content == b""
    assert not directory.exists()
    assert client.get(at).status_code == 404


SLURM = {"evaluator": "slurm", "slurm": {"profile": "frontier"}}
TINY = {"model": "tiny", "evaluator": "local", "machine": "local", "nodes": 1, "pool_nodes": 1}
SHAPE = {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 4}
BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "unknown model": ({"model": "gpt-22"}, "model", "gpt-22b"),
    "no nodes": ({"nodes": 0}, "nodes", "more than 0"),
    "a budget of nothing": ({"budget": {"max_trials": 0}}, "budget.max_trials", "more than 0"),
    "a batch beyond counting": (
        {"space": {"global_batch_size": 10**18}},
        "space.global_batch_size",
        "at most 1000000000",
    ),
    "a training of no token": ({"tokens": 5e-324}, "tokens", "at least 1"),
    "a training of too many tokens": (
        {"budget": {"train_tokens": 1e308}},
        "budget.train_tokens",
        "at most 1e+18",
    ),
    "a budget of no node-hours": (
        {"budget": {"max_node_hours": 0}},
        "budget.max_node_hours",
        "more than 0",
    ),
    "real trials of what the trainer cannot run": (
        TINY | {"space": {"sequence_parallel": True, "tensor_parallel": [2, 4]}},
        "space",
        "sequence_parallel must be false",
    ),
    "an unknown evaluator": ({"evaluator": "slurmm"}, "evaluator", "'slurm'"),
    "jobs without a profile": ({"evaluator": "slurm"}, "slurm.profile", "frontier or generic"),
    "a profile for no job": ({"slurm": {"profile": "frontier"}}, "slurm", "simulated evaluator"),
    "an unknown profile": (SLURM | {"slurm": {"profile": "fronteer"}}, "slurm.profile", "frontier"),
    "a profile's file": (SLURM | {"slurm": {"profile": "/etc/x.toml"}}, "slurm.profile", "generic"),
    "a space's name": ({"space": {"name": "table-v"}}, "space.name", "or preset or"),
    "a profile's text": (SLURM | {"slurm": {"prologue": "id"}}, "slurm.prologue", "no such field"),
    "an unknown mode": (
        SLURM | {"slurm": {"profile": "frontier", "mode": "pilots"}},
        "slurm.mode",
        "'pilot'",
    ),
    "another machine's profile": (SLURM | {"slurm": {"profile": "lumi-g"}}, "machine", "lumi-g"),
    "jobs of what the trainer cannot run": (
        SLURM | {"space": {"sequence_parallel": True, "tensor_parallel": [2, 4]}},
        "space",
        "sequence_parallel must be false",
    ),
    "a baseline of an unknown key": ({"baseline": "tp=8,mbz=1"}, "baseline", "did you mean mbs?"),
    "a baseline that no rule allows": (
        {"baseline": "tp=5"},
        "baseline",
        "24576 is not divisible by tensor_parallel 5",
    ),
    "a baseline without one of its sizes": (
        {"baseline": {"tensor_parallel": 8}},
        "baseline.pipeline_parallel",
        "required",
    ),
    "a baseline that the trainer cannot run": (
        TINY | {"space": {"preset": "tiny-local"}, "baseline": "tp=2,sp=on"},
        "baseline",
        "sequence_parallel must be false",
    ),
    "a misspelt field": ({"nodez": 4}, "nodez", "nodes"),
    "a misspelt field within": ({"budget": {"max_trails": 4}}, "budget.max_trails", "max_trials"),
    "a shape without a size": (
        {"model": {"num_layers": 4, "num_attention_heads": 4}},
        "model.hidden_size",
        "required",
    ),
    "a shape with a wrong size": (
        {"model": {"num_layers": -1, "hidden_size": 8, "num_attention_heads": 4}},
        "model.num_layers",
        "must be positive",
    ),
    "a shape with fewer experts than a token passes": (
        {"model": SHAPE | {"experts": {"num_experts": 8, "top_k": 9, "ffn_hidden_size": 8}}},
        "model.experts.top_k",
        "there are 8 experts",
    ),
    "a shape with an expert of no width": (
        {"model": SHAPE | {"experts": {"num_experts": 8, "top_k": 2}}},
        "model.experts.ffn_hidden_size",
        "required",
    ),
    "a model that the trainer cannot train": (
        TINY | {"model": "nemotron-3-nano-30b-a3b", "space": {"preset": "tiny-local"}},
        "model",
        "the bundled trainer is not known to train Mamba layers",
    ),
    "half a range": (
        {"space": {"tensor_parallel": {"minimum": 1}}},
        "space.tensor_parallel.maximum",
        "required",
    ),
    "a name too long": ({"name": "x" * 201}, "name", "at most 200 characters"),
    "a name that no database keeps": ({"name": "a\0b"}, "name", "NUL character"),
    "too many values": (
        {"space": {"gradient_accumulation_steps": list(range(1, 1002))}},
        "space.gradient_accumulation_steps",
        "at most 1000 values",
    ),
    "no number": ({"min_headroom_gib": "NaN"}, "min_headroom_gib", "finite"),
    "billions without their letter": (
        {"budget": {"train_tokens": 15}},
        "budget.train_tokens",
        "15B, trillions as 15T",
    ),
    "no number of tokens": ({"tokens": "NaN"}, "tokens", "300B, 1.4T or 300e9"),
}


@pytest.mark.parametrize(("changes", "field", "text"), BAD.values(), ids=BAD)
def test_bad_input_is_refused_with_field_value_and_reason(
    shared_client: TestClient, changes: dict[str, Any], field: str, text: str
) -> None:
    answer = shared_client.post(CAMPAIGNS, json=body(**changes))
    assert answer.status_code == 422, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == 422
    named = {error["field"]: error for error in problem["errors"]}
    assert field in named, problem["errors"]
    assert text in str(named[field]["reason"]) + str(named[field]["valid"])
    assert "\n" not in problem["detail"]
    assert shared_client.get(CAMPAIGNS).json()["items"] == []


@pytest.mark.parametrize("dry_run", [False, True])
def test_several_faults_are_reported_at_once(shared_client: TestClient, *, dry_run: bool) -> None:
    request = body(model="gpt-22", machine="fronteer")
    answer = shared_client.post(CAMPAIGNS, params={"dry_run": dry_run}, json=request)
    assert answer.status_code == 422
    assert {error["field"] for error in answer.json()["errors"]} == {"model", "machine"}


def test_a_request_the_checkout_cannot_train_is_refused_first(
    client: TestClient, sqlite_settings: Settings, tmp_path: Path
) -> None:
    source = tmp_path / "checkout" / "megatron" / "model" / "rotary_pos_embedding.py"
    source.parent.mkdir(parents=True)
    source.write_text("rope = [base.cos(), base.sin()]\n")
    sqlite_settings.profiles_dir.mkdir(parents=True)
    (sqlite_settings.profiles_dir / "mine.toml").write_text(
        f'[trainer]\nadapter = "megatron-deepspeed"\nfolder = "{tmp_path}/checkout"\n'
    )
    request = body(model="llama-2-7b", evaluator="slurm", slurm={"profile": "mine"})
    answer = client.post(CAMPAIGNS, json=request)
    assert answer.status_code == 422, answer.text
    assert "this checkout has rotary positions as a list" in answer.text
    assert "6acc370a" in answer.text


def test_a_full_disk_is_reported_and_nothing_is_half_written(app: FastAPI, store: Store) -> None:
    """SQLite itself refuses to grow the file."""
    with entitled(app) as client:
        assert client.post(CAMPAIGNS, json=body()).status_code == 201
        with store.engine.connect() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        store.engine.dispose()

        def no_room(connection: Any, record: object) -> None:  # noqa: ARG001
            connection.execute(f"PRAGMA max_page_count = {pages + 4}")

        event.listen(store.engine, "connect", no_room)
        answers = [client.post(CAMPAIGNS, json=body(name="x" * 200)) for _ in range(12)]
        codes = [answer.status_code for answer in answers]
        assert set(codes) == {201, 507}
        assert answers[codes.index(507)].json()["detail"].startswith("the disk")
        listed = client.get(CAMPAIGNS, params={"limit": 100}).json()["items"]
        assert len(listed) == 1 + codes.count(201)
        with store.engine.connect() as connection:
            events = connection.exec_driver_sql("SELECT count(*) FROM events").scalar()
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
        assert events == len(listed)
