"""Answers for the reference, of one campaign: `python -m tests.server.api.recording` records them.

Lists are cut after two items: what the others look like is known then.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from server.api.campaigns import EXAMPLES as CAMPAIGNS
from server.api.conditional import JSON
from server.api.description import BODIES, EXAMPLES, operations
from server.api.samples import SAMPLES
from server.app import create_app
from server.runner.runner import Runner
from server.settings import Settings
from server.store.campaigns import get_campaign
from tests.server.entitled import entitled

MOST_ITEMS = 2
MOST_LINES = 24
DIGITS = 6
DATA_DIR = "/srv/autotune"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A call of the reference: an operation with the examples of its parameters and its body."""

    name: str
    method: str
    url: str
    body: Any = None


def asked(document: dict[str, Any]) -> Iterator[Asked]:
    """Yield the calls in the order in which they work, those of no sample first."""
    order = list(SAMPLES)
    found = {operation["operationId"]: each for *each, operation in operations(document)}
    for name in sorted(found, key=lambda name: order.index(name) if name in order else -1):
        path, method = found[name]
        operation = document["paths"][path][method]
        url, query = path, {}
        for parameter in operation.get("parameters", []):
            examples = parameter.get("schema", {}).get("examples")
            if parameter.get("in") == "path":
                url = url.replace("{" + parameter["name"] + "}", str(examples[0]))
            elif parameter.get("in") == "query" and parameter["required"]:
                query[parameter["name"]] = examples[0]
        url += "?after=0" if name == "events.of_all" else ""
        url += "?" + "&".join(f"{key}={value}" for key, value in query.items()) if query else ""
        content = operation.get("requestBody", {}).get("content", {}).get(JSON, {})
        bodies = [example["value"] for example in content.get("examples", {}).values()] or [None]
        for body in bodies:
            yield Asked(name=name, method=method, url=url, body=body)


def run_to_end(app: FastAPI, campaigns: Iterable[int]) -> None:
    """Run what is queued until these campaigns are done."""
    runner = Runner(app.state.settings, app.state.store)
    left = set(campaigns)
    while left:
        runner.round()
        with app.state.store.session() as session:
            left = {each for each in left if get_campaign(session, each).state != "done"}
    runner.close()


def record(data_dir: Path) -> None:
    settings = Settings(
        data_dir=data_dir, poll_interval_s=0.01, stream_life_s=1.0, stream_poll_s=0.02
    )
    app = create_app(settings)
    question = CAMPAIGNS["simulated"]["value"]
    other = question | {"name": "The same with another seed", "seed": 1, "fresh": True}
    with entitled(app) as client:
        for body in (question, other):
            client.post("/api/v1/campaigns", json=body).raise_for_status()
        run_to_end(app, (1, 2))
        for path in EXAMPLES.glob("*"):
            path.unlink()
        for call in asked(client.get("/api/v1/openapi.json").json()):
            _record(client, call, str(data_dir))
            if call.name == "campaigns.create":
                dry = Asked(
                    name=call.name, method="post", url=f"{call.url}?dry_run=true", body=call.body
                )
                _record(client, dry, str(data_dir))
    app.state.store.close()


def _record(client: TestClient, call: Asked, data_dir: str) -> None:
    body = call.body or (_recorded(BODIES[call.name]) if call.name in BODIES else None)
    answer = client.request(call.method, call.url, json=body)
    answer.raise_for_status()
    if not answer.content:
        return
    kind = answer.headers.get("content-type", "").partition(";")[0]
    path = EXAMPLES / f"{call.name}.{answer.status_code}"
    if kind == JSON:
        text = json.dumps(shortened(answer.json()), indent=1, ensure_ascii=False) + "\n"
        path = path.with_name(path.name + ".json")
    elif kind.startswith("text/"):
        text = _cut(answer.text, events=kind == "text/event-stream")
        path = path.with_name(path.name + ".txt")
    else:
        return
    if not path.exists():  # of several examples of a request, the first
        path.write_text(text.replace(data_dir, DATA_DIR), encoding="utf-8")


def _recorded(name: str) -> Any:
    return json.loads((EXAMPLES / name).read_text(encoding="utf-8"))


def shortened(value: Any) -> Any:
    """Return a document with lists cut after two items and fractions after six digits."""
    if isinstance(value, dict):
        return {name: shortened(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shortened(each) for each in value[:MOST_ITEMS]]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _cut(text: str, *, events: bool) -> str:
    """Return the first lines of a text, of a stream those of its first events."""
    if not events:
        return "\n".join(text.splitlines()[:MOST_LINES]) + "\n"
    shown = []
    for event in text.split("\n\n")[: 1 + MOST_ITEMS]:
        for line in event.splitlines():
            name, _, data = line.partition(": ")
            short = json.dumps(shortened(json.loads(data))) if name == "data" else data
            shown.append(f"{name}: {short}")
        shown.append("")
    return "\n".join(shown)


if __name__ == "__main__":
    os.environ["AUTOTUNE_CONFIG"] = os.devnull
    EXAMPLES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        record(Path(folder))
