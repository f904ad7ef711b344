"""The description of the API: nothing in it goes without words, and its examples hold."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from jsonschema_rs import Draft202012Validator

from server.api.description import operations
from server.app import create_app
from server.settings import Settings
from tests.pace import QUICK
from tests.server.dashboard.campaigns import Campaigns
from tests.server.entitled import entitled

PROBLEM = "application/problem+json"
LAST = [f"campaigns.{each}" for each in ("extend", "change", "pause", "resume", "cancel", "delete")]
"""What changes the campaign of the examples, in an order that works."""


@dataclass(frozen=True, kw_only=True)
class ExampleCall:
    """A call of an operation, with the examples of its parameters and its body."""

    name: str
    method: str
    url: str
    body: Any = None


def example_calls(document: dict[str, Any]) -> Iterator[ExampleCall]:
    """Yield the calls in the order in which they work."""
    found = {operation["operationId"]: each for *each, operation in operations(document)}
    for name in sorted(found, key=lambda name: LAST.index(name) if name in LAST else -1):
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
        contents = operation.get("requestBody", {}).get("content", {"": {}})
        [content] = contents.values()
        bodies = [example["value"] for example in content.get("examples", {}).values()] or [None]
        for body in bodies:
            yield ExampleCall(name=name, method=method, url=url, body=body)


@pytest.fixture(scope="module")
def two_done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a service with two campaigns that are done."""
    data_dir = tmp_path_factory.mktemp("data")
    made = Campaigns(Settings(data_dir=data_dir))
    for _ in range(2):
        made.done(ok=5, too_big=1)
    made.store.close()
    return data_dir


@pytest.fixture
def app(two_done: Path, tmp_path: Path) -> Iterator[FastAPI]:
    """The service, whose data folder is as it was afterwards: calls steer and delete."""
    copy = shutil.copytree(two_done, tmp_path / "copy")
    opened = create_app(Settings(data_dir=two_done), pace=QUICK)
    yield opened
    opened.state.store.close()
    shutil.rmtree(two_done)
    shutil.copytree(copy, two_done)


@pytest.fixture(scope="module")
def document(two_done: Path) -> dict[str, Any]:
    app = create_app(Settings(data_dir=two_done), pace=QUICK)
    app.state.store.close()
    return app.openapi()


def test_every_property_parameter_and_answer_is_described(document: dict[str, Any]) -> None:
    silent = []
    for name, schema in document["components"]["schemas"].items():
        silent += [name] * (not schema.get("description"))
        for field, found in schema.get("properties", {}).items():
            silent += [f"{name}.{field}"] * (not found.get("description"))
    for path, method, operation in operations(document):
        for parameter in operation.get("parameters", []):
            silent += [f"{method} {path} {parameter.get('name')}"] * (
                not ("$ref" in parameter or parameter.get("description"))
            )
        for status, answer in operation["responses"].items():
            refusal = int(status) >= 400
            silent += [f"{method} {path} {status}"] * (refusal and PROBLEM not in answer["content"])
            described = answer["description"] not in {"", "Successful Response"}
            silent += [f"{method} {path} {status}"] * (not described)
        silent += [f"{method} {path}"] * (not (operation["summary"] and operation["tags"]))
    assert silent == []
    assert {tag for *_, each in operations(document) for tag in each["tags"]} == {
        tag["name"] for tag in document["tags"]
    }


def test_every_refusal_has_an_example_that_holds(document: dict[str, Any]) -> None:
    refusals = [
        content
        for *_, operation in operations(document)
        for answer in operation["responses"].values()
        for kind, content in answer.get("content", {}).items()
        if kind == PROBLEM
    ]
    for content in refusals:
        whole = {**content["schema"], "components": document["components"]}
        Draft202012Validator(whole).validate(content["example"])
    assert len(refusals) > len(document["paths"])


def test_every_request_has_an_example_that_the_service_accepts(
    app: FastAPI, document: dict[str, Any]
) -> None:
    """Those that read come first, and the last ones extend, steer and delete a campaign."""
    taking = {each["operationId"] for *_, each in operations(document) if "requestBody" in each}
    with entitled(app) as client:
        for call in example_calls(document):
            if call.name.startswith("events."):
                continue  # without a body, and it goes on for minutes
            assert (call.body is not None) == (call.name in taking), call.name
            body = {"content" if isinstance(call.body, str) else "json": call.body}
            answer = client.request(call.method, call.url, **body)
            assert answer.is_success, (call.name, answer.text)
