"""The description of the API, and the API held against it."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import Any

import hypothesis
import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis.errors import Unsatisfiable
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from server.app import create_app
from server.settings import Settings
from tests.server.asking import created, with_trials

EXAMPLES = 8


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]


def test_every_operation_describes_its_refusals(client: TestClient) -> None:
    document = client.get("/api/v1/openapi.json").json()
    assert "Problem" in document["components"]["schemas"]
    for method, path, operation in operations(document):
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                assert "application/problem+json" in answer["content"], (method, path, status)
        assert operation["tags"], path


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, str]]:
    """The description of a service that has a campaign with trials, and what lets one in."""
    settings = Settings(
        data_dir=tmp_path_factory.mktemp("data"),
        stream_life_s=0.05,
        stream_poll_s=0.02,
        allowed_hosts=("testserver",),
    )
    app = create_app(settings)
    with_trials(app.state.store, created(app.state.store), 2)
    headers = {"Authorization": f"Bearer {app.state.access.token}"}
    return schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, headers=headers), headers


def test_answers_are_as_described(described: tuple[Any, dict[str, str]]) -> None:
    """Generated requests, good and bad, of every operation; each is also sent without the token."""
    schema, headers = described
    held = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        for mode in GenerationMode:
            hold(operation, mode, headers)
        held += 1
    assert held == len(operations(schema.raw_schema))


def hold(operation: Any, mode: GenerationMode, headers: dict[str, str]) -> None:
    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def answers_are_as_described(case: schemathesis.Case[Any]) -> None:
        # A schema cannot say that TP has to divide the heads: what it allows may be refused.
        case.call_and_validate(headers=headers, excluded_checks=[positive_data_acceptance])

    takes_nothing = suppress(Unsatisfiable) if mode.is_negative else nullcontext()
    with takes_nothing:  # and so nothing can be wrong about what it is given
        answers_are_as_described()
