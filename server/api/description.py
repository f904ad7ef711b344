"""The OpenAPI description of the API: FastAPI's, with what FastAPI cannot know."""

from __future__ import annotations

import re
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from fastapi.routing import APIRoute

from autotune.schemas.campaigns import Event
from autotune.schemas.wire import Problem
from server.api.answers import ETAG, JSON, RESOURCES
from server.api.dependencies import problems

Document = dict[str, Any]

TITLE = "How should this model be laid out on this cluster so that it trains fastest?"
SUMMARY = """\
Everything is under `/api/v1`. Bodies are JSON, times are UTC (RFC 3339), and units stand in names.

**Errors** are problem documents (RFC 9457, `application/problem+json`): `detail` says in one line \
what is wrong, and `errors` names each refused field with its value, the reason, and what is valid.

**Unchanged answers.** JSON answers have an `ETag`; a `GET` with it in `If-None-Match` is answered \
with 304 and no body if nothing has changed. `HEAD` works wherever `GET` does, except for streams.

**Filters.** Unknown query parameters are refused with the list of known ones.

**Pages** end with `next`, the cursor of the next one. Pages never repeat or skip a row, even if \
rows are added meanwhile.

**Authentication.** By the Unix socket `service.sock` in the data folder, or by a token \
(`Authorization: Bearer`): a user's, or the service's own from `service.json` in that folder. \
Other requests are answered with 401, except `/healthz` and `/readyz`.

**Retries.** With an `Idempotency-Key`, a repeated `POST` to `/api/v1/campaigns` \
creates nothing new, and answers with the campaign that the first one created.
"""
HEALTH = "health"
"""The tag of operations without authentication."""

TOKEN = {
    "type": "http",
    "scheme": "bearer",
    "description": "The token in `service.json`, or a user's.",
}
TAGS = {
    "campaigns": "Searches: created, listed, controlled, compared.",
    "trials": "Short training runs of a campaign.",
    "recommendation": "What a campaign recommends, why, and the files that launch it.",
    "figures": "Results of a campaign as data, charts and pictures.",
    "predictions": "Predictions of the cost model before anything runs.",
    "catalog": "Models, machines and ready spaces.",
    "profiles": "Clusters that campaigns may run on.",
    "adapters": "Trainers that campaigns may run, each described by a file.",
    "events": "Changes as they happen.",
    "access": "The caller's identity, and sign-in keys for browsers.",
    "users": "Users of a shared service: for admins.",
    HEALTH: "Whether the service is alive, and whether it can work.",
}
"""Kinds of resources, in the order of the API reference."""

REFUSED = {
    "field": "nodes",
    "value": 0,
    "reason": "Input should be greater than 0",
    "valid": "",
}


def operation_id(route: APIRoute) -> str:
    """Return the name of an operation: its module and function, such as `campaigns.read`."""
    return f"{route.endpoint.__module__.rpartition('.')[2]}.{route.name}"


def described(document: Document) -> Document:
    """Return FastAPI's description with the schemas of problems and events, which no endpoint
    declares, and descriptions of responses."""
    components = document["components"]
    for model in (Problem, Event):
        schema = model.model_json_schema(
            ref_template="#/components/schemas/{model}", mode="serialization"
        )
        definitions = schema.pop("$defs")
        components["schemas"] |= {model.__name__: schema}
        components["schemas"] = definitions | components["schemas"]
    components["parameters"] = {
        "If-None-Match": {
            "name": "If-None-Match",
            "in": "header",
            "required": False,
            "description": "`ETag` of a cached response.",
            "schema": {"type": "string"},
        }
    }
    document["tags"] = [{"name": name, "description": words} for name, words in TAGS.items()]
    components["securitySchemes"] = {"token": TOKEN}
    for path, method, operation in operations(document):
        if HEALTH not in operation["tags"]:
            operation["security"] = [{"token": []}]
            operation["responses"]["401"] = problems(401)[401]
        if "requestBody" in operation:
            operation["responses"]["413"] = problems(413)[413]
        _describe(operation, components["schemas"])
        if method == "get" and path.startswith(RESOURCES):
            _make_conditional(operation)
    return document


def operations(document: Document) -> Iterator[tuple[str, str, Document]]:
    """Yield the path, the method and the description of each operation."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, in one line and without a full stop."""
    return re.split(r"[.;] ", " ".join(text.split()))[0].removesuffix(".")


def _describe(operation: Document, schemas: Document) -> None:
    operation["summary"] = first_sentence(operation["description"])
    for status, answer in operation["responses"].items():
        _describe_answer(status, answer, schemas)


def _describe_answer(status: str, answer: Document, schemas: Document) -> None:
    for media_type, content in answer.get("content", {}).items():
        schema = content.get("schema", {})
        if media_type == "application/problem+json":
            content["example"] = _refusal(HTTPStatus(int(status)), answer["description"])
        elif "$ref" in schema and answer["description"] == "Successful Response":
            words = schemas[schema["$ref"].rpartition("/")[2]]["description"]
            answer["description"] = f"{first_sentence(words)}."


def _make_conditional(operation: Document) -> None:
    answer = operation["responses"]["200"]
    if JSON in answer["content"]:
        answer.setdefault("headers", {})["ETag"] = ETAG
    if ETAG not in answer.get("headers", {}).values():
        return
    operation["responses"]["304"] = {"description": "Nothing has changed; there is no body."}
    parameters = operation.setdefault("parameters", [])
    parameters.append({"$ref": "#/components/parameters/If-None-Match"})


def _refusal(status: HTTPStatus, detail: str) -> Document:
    problem = {"type": "about:blank", "title": status.phrase, "status": int(status)}
    if status != HTTPStatus.UNPROCESSABLE_ENTITY:
        return problem | {"detail": detail, "errors": []}
    return problem | {"detail": f"nodes=0: {REFUSED['reason']}", "errors": [REFUSED]}
