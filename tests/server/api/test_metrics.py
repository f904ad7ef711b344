from __future__ import annotations

import re
from pathlib import Path

import yaml
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families as families

from server.app import create_app
from server.settings import Settings
from server.store import Store
from tests.pace import QUICK
from tests.server.asking import created, with_trials

Figures = dict[tuple[str, frozenset[tuple[str, str]]], float]


def figures(client: TestClient) -> Figures:
    page = client.get("/metrics")
    assert page.is_success
    assert page.headers["Content-Type"].startswith("text/plain; version=")
    found = [sample for metric in families(page.text) for sample in metric.samples]
    values = {(each.name, frozenset(each.labels.items())): each.value for each in found}
    assert len(values) == len(found), "each sample appears once"
    return values


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


def test_campaigns_and_trials_are_recounted_when_they_change(
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


def metrics_of_rules() -> set[str]:
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


def test_the_alerting_rules_name_metrics_that_exist(client: TestClient, store: Store) -> None:
    with_trials(store, created(store), 1)
    client.get("/api/v1/models")
    ends = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}
    named = {
        metric.name + end
        for metric in families(client.get("/metrics").text)
        for end in ends.get(metric.type, [""])
    }
    assert metrics_of_rules()
    assert metrics_of_rules() <= named


def test_a_page_without_a_database_says_so(client: TestClient, sqlite_settings: Settings) -> None:
    for part in sqlite_settings.data_dir.glob("autotune.db*"):
        part.unlink()
    found = figures(client)
    assert of(found, "autotune_database_up") == 0


def test_a_token_of_its_own_opens_the_figures_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("for-prometheus\n")
    app = create_app(Settings(data_dir=tmp_path / "data", metrics_token_file=file), pace=QUICK)
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
