"""The description of the API, and the API held against it.

With `AUTOTUNE_API_CASES=20000` in the environment it is as many generated requests, half of them
in sequences in which each uses what earlier ones were answered, on both kinds of database.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from hypothesis.errors import FlakyStrategyDefinition, Unsatisfiable

from server.api.description import operations
from server.app import create_app
from server.settings import Settings
from tests.pace import QUICK
from tests.server import postgres
from tests.server.asking import created, with_trials

if TYPE_CHECKING:  # otherwise where it is used: every process of tests would import it
    import schemathesis
    from schemathesis.core.failures import FailureGroup
    from schemathesis.generation import GenerationMode

CASES = int(os.environ.get("AUTOTUNE_API_CASES", "0"))
"""So many requests; otherwise a few of each operation, one by one, on SQLite alone."""
EXAMPLES = 2
SEQUENCES, STEPS = 20, 20
"""Sequences of a run, requests of a sequence."""


def left_out() -> list[Any]:
    """A schema cannot say that TP has to divide the heads: what it allows may be refused."""
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    return [positive_data_acceptance]


CATALOG = {"model": ["gpt-22b", "mixtral-8x7b", "tiny"], "machine": ["frontier", "aurora"]}
"""Names that a text drawn at random would never be, so that requests reach the arithmetic."""
USUAL = (1, 2, 4, 8)


def at_ends(document: dict[str, Any]) -> dict[str, Any]:
    """Return a description whose requests draw numbers from the ends of their ranges, and names
    from the catalog, half of the time; what it says of answers stays."""
    found = deepcopy(document)
    schemas = found["components"]["schemas"]
    schemas |= {f"{name}AtEnds": _at_ends(schema) for name, schema in schemas.items()}
    for path in found["paths"].values():
        for operation in path.values():
            for place in ("parameters", "requestBody"):
                if place in operation:
                    operation[place] = _at_ends(operation[place])
    return found


def _at_ends(node: Any) -> Any:
    if isinstance(node, list):
        return [_at_ends(each) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return {"$ref": f"{node['$ref']}AtEnds"} if "/schemas/" in node["$ref"] else node
    new = {key: _at_ends(each) for key, each in node.items() if key != "default"}
    for name in sorted(CATALOG.keys() & new.get("properties", {}).keys()):
        new["properties"][name] = {"anyOf": [{"enum": CATALOG[name]}, new["properties"][name]]}
    if node.get("type") in ("integer", "number") and (ends := _ends(node)):
        return {"anyOf": [new, {"enum": ends}]}
    return new


def _ends(number: dict[str, Any]) -> list[float]:
    whole = number.get("type") == "integer"
    low, high = number.get("minimum"), number.get("maximum")
    if (above := number.get("exclusiveMinimum")) is not None:
        low = above + 1 if whole else math.nextafter(above, math.inf)
    if (below := number.get("exclusiveMaximum")) is not None:
        high = below - 1 if whole else math.nextafter(below, -math.inf)
    usual = [each for each in USUAL if (low or 0) <= each <= (high or math.inf)]
    ends = [each for each in (low, high) if each is not None]
    return list(dict.fromkeys([*ends, *usual])) if ends else []


@dataclass(frozen=True)
class Described:
    """The description of a service, what lets one in, and how it has answered by status."""

    schema: Any
    headers: dict[str, str]
    answers: Counter[int] = field(default_factory=Counter)

    def hold(self, case: schemathesis.Case[Any]) -> None:
        """Each is also sent without the token."""
        answer = case.call_and_validate(headers=self.headers, excluded_checks=left_out())
        self.answers[answer.status_code] += 1


@pytest.fixture(scope="module", params=["sqlite", "postgresql"] if CASES else ["sqlite"])
def described(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Described]:
    """Of a service that has a campaign with trials."""
    import schemathesis

    on_server = request.param == "postgresql"
    settings = Settings(
        data_dir=tmp_path_factory.mktemp("data"),
        database_url=postgres.emptied(request.getfixturevalue("postgres_url")) if on_server else "",
        allowed_hosts=("testserver",),
        insecure_http=True,
    )
    app = create_app(settings, pace=replace(QUICK, stream_life_s=0.05))
    with_trials(app.state.store, created(app.state.store), 2)
    headers = {"Authorization": f"Bearer {app.state.authenticator.token}"}
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, headers=headers)
    found = Described(schema, headers)
    yield found
    print(f"\n{found.answers.total()} requests on {request.param}, answered {found.answers}")
    app.state.store.close()


@pytest.mark.soak
@pytest.mark.timeout(24 * 3600 if CASES else 600)
def test_answers_are_as_described(described: Described) -> None:
    """Generated requests, good and bad, of every operation."""
    from schemathesis.generation import GenerationMode

    each = list(operations(described.schema.raw_schema))
    examples = max(EXAMPLES, CASES // 2 // len(each) // len(GenerationMode))
    held = 0
    for found in described.schema.get_all_operations():
        for mode in GenerationMode:
            hold(described, found.ok(), mode, examples=examples)
        held += 1
    assert held == len(each)


@pytest.mark.soak
@pytest.mark.timeout(24 * 3600 if CASES else 600)
def test_answers_to_ends_of_ranges_are_as_described(described: Described) -> None:
    import schemathesis
    from schemathesis.generation import GenerationMode

    reaching: Any = schemathesis.openapi.from_dict(at_ends(described.schema.raw_schema))
    reaching.app = described.schema.app
    asking = [found.ok() for found in reaching.get_all_operations()]
    asking = [each for each in asking if each.body or each.query]
    for operation in asking:
        examples = max(EXAMPLES, CASES // len(asking))
        hold(described, operation, GenerationMode.POSITIVE, examples=examples)
    assert len(asking) > 10


def hold(described: Described, operation: Any, mode: GenerationMode, *, examples: int) -> None:
    @settled(examples)
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def answers_are_as_described(case: schemathesis.Case[Any]) -> None:
        described.hold(case)

    takes_nothing = suppress(Unsatisfiable) if mode.is_negative else nullcontext()
    with takes_nothing:  # and so nothing can be wrong about what it is given
        answers_are_as_described()


def settled(examples: int, **more: Any) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        **more,
    )


@pytest.mark.skipif(not CASES, reason="in full only: AUTOTUNE_API_CASES")
@pytest.mark.timeout(24 * 3600)
def test_answers_to_sequences_are_as_described(described: Described) -> None:
    """In runs of a few sequences: a run ends where the same draws are answered otherwise than
    before, as they may be, for the service keeps what earlier sequences have made."""
    from schemathesis.core.failures import FailureGroup

    faults: list[FailureGroup] = []

    class Sequence(described.schema.as_state_machine()):  # type: ignore[misc]
        def get_call_kwargs(self, case: schemathesis.Case[Any]) -> dict[str, Any]:  # noqa: ARG002
            return {"headers": described.headers}

        def after_call(self, response: Any, case: schemathesis.Case[Any]) -> None:
            super().after_call(response, case)
            described.answers[response.status_code] += 1

        def validate_response(
            self, response: Any, case: schemathesis.Case[Any], **kwargs: Any
        ) -> None:
            try:
                case.validate_response(
                    response,
                    excluded_checks=left_out(),
                    transport_kwargs=kwargs,
                    recorder=self.recorder,
                )
            except FailureGroup as fault:  # raised here it would be lost where a run ends so
                faults.append(fault)

    run_settings = settled(SEQUENCES, phases=[hypothesis.Phase.generate], stateful_step_count=STEPS)
    for seed in count():
        if faults or described.answers.total() >= CASES:
            break
        with suppress(FlakyStrategyDefinition):
            hypothesis.seed(seed)(Sequence).run(settings=run_settings)
    assert not faults
