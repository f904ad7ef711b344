"""The description of the API, and the API held against it.

With `AUTOTUNE_API_CASES=20000` in the environment it is as many generated requests, half of them
in sequences in which each uses what earlier ones were answered, on both kinds of database.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from hypothesis.errors import FlakyStrategyDefinition, Unsatisfiable

from server.api.description import operations
from server.app import create_app
from server.settings import Settings
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
        stream_life_s=0.05,
        stream_poll_s=0.02,
        allowed_hosts=("testserver",),
        insecure_http=True,
    )
    app = create_app(settings)
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
