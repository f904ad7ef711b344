from __future__ import annotations

import math
import os
import re
from pathlib import Path
from platform import node

import pytest
import yaml
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families as families

from server.app import create_app
from server.runner.runner import Runner
from server.settings import Settings
from server.store import Store
from tests.server.asking import created, with_trials

Figures = dict[tuple[str, frozenset[tuple[str, str]]], float]


def figures(client: TestClient) -> Figures:
    page = client.get("/metrics")
    assert page.is_success
    assert page.headers["Content-Type"].startswith("text/plain; version=")
    found = [sample for metric in families(page.text) for sample in metric.samples]
    told = {(each.name, frozenset(each.labels.items())): each.value for each in found}
    assert len(told) == len(found), "a sample is told once"
    return told


def of(
    found: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str, **labels: str
) -> float:
    """Return the sum of a figure over all samples with these labels; NaN where there is none."""
    wanted = set(labels.items())
    values = [value for (each, with_), value in found.items() if each == name and wanted <= with_]
    return sum(values) if values else float("nan")


def test_requests_are_counted_by_the_template_of_their_path(client: TestClient) -> None:
    for path in ("/api/v1/campaigns/7", "/api/v1/campaigns/8", "/api/v1/models", "/nowhere/1"):
        client.get(path)
    client.head("/api/v1/models")
    client.get("/static/dashboard.css")
    client.get("/api/v1/models", headers={"Authorization": "Bearer wrong"}, auth=None)
    found = figures(client)
    requests = "autotune_http_requests_total"
    campaign = "/api/v1/campaigns/{campaign_id}"
    assert of(found, requests, method="GET", route=campaign, status="404") == 2
    assert of(found, requests, method="GET", route="/api/v1/models", status="200") == 1
    assert of(found, requests, method="HEAD", route="/api/v1/models", status="200") == 1
    assert of(found, requests, route="none", status="404") == 1
    assert of(found, requests, route="none", status="401") == 1
    assert of(found, requests, route="/static/", status="200") == 1
    assert of(found, "autotune_http_request_duration_seconds_count", route=campaign) == 2


def test_campaigns_and_trials_are_counted_as_they_stand_and_again_when_they_change(
    client: TestClient, store: Store
) -> None:
    first = created(store)
    with_trials(store, first, 3)
    found = figures(client)
    assert of(found, "autotune_campaigns", evaluator="simulated", state="queued") == 1
    assert of(found, "autotune_trials", evaluator="simulated", state="created") == 3
    created(store)
    with_trials(store, first, 2)
    found = figures(client)
    assert of(found, "autotune_campaigns", state="queued") == 2
    assert of(found, "autotune_trials", state="created") == 5
    assert of(found, "autotune_database_up") == 1
    assert of(found, "autotune_database_connections", state="in_use") == 0


def asked_by_rules() -> set[str]:
    """Return what the recommended rules of alarms name."""
    guide = Path("docs/group.md").read_text()
    [rules] = [
        block for block in re.findall(r"```yaml\n(.*?)```", guide, re.S) if "alert:" in block
    ]
    return {
        name
        for group in yaml.safe_load(rules)["groups"]
        for rule in group["rules"]
        for name in re.findall(r"autotune_\w+", rule["expr"])
    }


def test_what_runners_have_counted_is_told_of_each_and_all_that_the_rules_name(
    client: TestClient, store: Store, sqlite_settings: Settings
) -> None:
    campaign = created(store, budget={"max_trials": 1}, protocol={"confirmations": 0})
    assert math.isnan(of(figures(client), "autotune_runner_silent_seconds")), "none works now"
    runner = Runner(sqlite_settings.model_copy(update={"lease_s": 0.03}), store)
    while client.get(f"/api/v1/campaigns/{campaign.id}").json()["state"] != "done":
        runner.round()
    while of(figures(client), "autotune_trials_ended_total", state="ok") == 0:
        runner.round()
    found = figures(client)
    ended = of(found, "autotune_trials", state="ok")
    assert ended >= 1
    told = client.get(f"/api/v1/campaigns/{campaign.id}").json()
    spent_s = told["node_hours"] * 3600
    assert of(found, "autotune_node_seconds") == pytest.approx(spent_s)
    assert of(found, "autotune_trials_ended_total", state="ok") >= ended
    assert of(found, "autotune_trial_queue_wait_seconds_count", evaluator="simulated") >= ended
    assert of(found, "autotune_proposal_duration_seconds_count") >= ended
    assert of(found, "autotune_lease_renewals_total", runner=f"{node()}:{os.getpid()}") > 0
    assert 0 <= of(found, "autotune_runner_silent_seconds") < 60
    ends = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}
    named = {
        metric.name + end
        for metric in families(client.get("/metrics").text)
        for end in ends.get(metric.type, [""])
    }
    asked = asked_by_rules()
    assert asked
    assert asked <= named, f"of these there are none: {sorted(asked - named)}"
    runner.close()
    assert math.isnan(of(figures(client), "autotune_runner_silent_seconds"))


def test_a_page_without_a_database_says_so(client: TestClient, sqlite_settings: Settings) -> None:
    for part in sqlite_settings.data_dir.glob("autotune.db*"):
        part.unlink()
    found = figures(client)
    assert of(found, "autotune_database_up") == 0
    assert of(found, "autotune_build_info") == 1


def test_a_token_of_its_own_opens_the_figures_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("for-prometheus\n")
    app = create_app(Settings(data_dir=tmp_path / "data", metrics_token_file=file))
    client = TestClient(app, base_url="http://127.0.0.1")
    own = {"Authorization": "Bearer for-prometheus"}
    assert client.get("/metrics", headers=own).is_success
    for path, headers in (
        ("/metrics", {}),
        ("/metrics", {"Authorization": "Bearer wrong"}),
        ("/metrics/", own),
        ("/api/v1/campaigns", own),
    ):
        assert client.get(path, headers=headers).status_code == 401, (path, headers)
    file.write_text("")
    assert client.get("/metrics", headers=own).status_code == 401, "it was changed"
    assert client.get("/metrics", headers={"Authorization": "Bearer "}).status_code == 401
    app.state.store.close()
