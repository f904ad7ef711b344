"""No address opens a campaign to whom it is closed: every route, in every spelling, for every
user."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts
from sqlalchemy import select

from autotune.schemas.choices import CampaignState
from server.api.dependencies import Positive, campaign_within_rights
from server.auth.origin import SAFE_METHODS
from server.auth.permissions import ASKING
from server.settings import Settings
from server.store import Store
from server.store.campaigns import get_campaign
from server.store.tables import Base
from tests.pace import QUICK
from tests.server.api.test_group import Group
from tests.server.dashboard.campaigns import Campaigns

PRIVATE = 2
"""The id of a private campaign of sue's that is done."""
SPELLINGS = [
    *("+{}", "{}.0", "%20{}", "{}%20", "{}%0a", "{}%09", "{}%00", "0{}", "{}_", "{}/", "/{}"),
    *("%2e/{}", "{}.", "0x{}", "{}e0", "-{}", "{}%2f", "{}%c2%a0", "%ef%bc%92", "%d9%a2"),
]
"""Of an integer in a path, none of which is its own; `%ef%bc%92` and `%d9%a2` are 2 in digits of
other scripts."""
OTHER = {
    "kind": "impact",
    "name": "gpt-22b",
    "picture": "svg",
    "file": "benchmark.sh",
}
"""What else paths take."""
EMPTY = {
    ("GET", "/api/v1/campaigns/{campaign_id}/trials/{number}/log"),
    ("GET", "/api/v1/campaigns/{campaign_id}/artefacts/{file}"),
}
"""Resources that a simulated campaign does not have: 404 for its owner, too."""
SECRET = "of nobody else"


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A method of a route, and the path as the description has it."""

    method: str
    path: str
    integers: frozenset[str]
    queries: frozenset[str]

    def at(self, **spelled: str) -> str:
        """Return the address, with these integers spelled so and the others as they should be."""
        values = OTHER | dict.fromkeys(self.integers, "1") | {"campaign_id": str(PRIVATE)}
        return self.path.format(**values | spelled)


def contexts(app: FastAPI) -> Iterator[RouteContext]:
    """Yield all routes of the application but for files: the pages' and the description."""
    for context in iter_route_contexts(app.routes):
        if isinstance(context.original_route, APIRoute):
            yield context


def operations(app: FastAPI) -> list[Operation]:
    return [
        Operation(
            method=method,
            path=context.path_format or "",
            integers=frozenset(
                name
                for name, convertor in context.param_convertors.items()
                if isinstance(convertor, Positive)
            ),
            queries=frozenset(
                field.alias
                for dependant in _all_of(context.dependant)
                for field in dependant.query_params
            ),
        )
        for context in contexts(app)
        for method in sorted(context.methods or ())
    ]


def everything(store: Store) -> dict[str, Any]:
    """Return all rows, without when each user was here last."""
    with store.session() as session:
        return {
            table.name: session.execute(
                select(*(column for column in table.columns if column.name != "last_used_at"))
            ).all()
            for table in Base.metadata.sorted_tables
        }


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    """With a private campaign that is done."""
    folder = tmp_path_factory.mktemp("rights")
    settings = Settings(data_dir=folder / "data", group=True)
    made = Group(settings, pace=replace(QUICK, stream_life_s=0.05))
    with made.client:
        made.made("sue", budget={"max_trials": 1})
        assert made.made("sue", private=True, name=SECRET, budget={"max_trials": 3}) == PRIVATE
        with made.store.session() as session:
            private = get_campaign(session, PRIVATE)
        trials = Campaigns(settings)
        fitting = trials.strategies(private, 3, fitting=True)
        trials.finish(private, trials.start(private, fitting))
        trials.move(private, CampaignState.DONE)
        trials.store.close()
        yield made


def test_every_campaign_of_a_path_passes_the_check_of_rights(closed: Group) -> None:
    """And every integer is matched in one spelling alone."""
    named = [context for context in contexts(closed.app) if "campaign_id" in (context.path or "")]
    assert len(named) > 20
    for context in contexts(closed.app):
        for dependant in _all_of(context.dependant):
            for field in dependant.path_params:
                convertor = context.param_convertors[field.alias]
                is_integer = field.field_info.annotation is int
                assert is_integer == isinstance(convertor, Positive), (context.path, field.alias)
                if field.alias == "campaign_id":
                    assert dependant.call is campaign_within_rights, context.path
        if context in named:
            calls = {dependant.call for dependant in _all_of(context.dependant)}
            assert campaign_within_rights in calls, context.path


def _all_of(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for other in dependant.dependencies:
        yield from _all_of(other)


@pytest.mark.soak
def test_no_spelling_opens_a_private_campaign(closed: Group) -> None:
    found = operations(closed.app)
    before = everything(closed.store)
    requests = 0
    for operation in found:
        if not operation.integers:
            continue
        # Not even its owner comes in by another spelling, and others by none.
        for user, address in [
            *(("sue", address) for address in _misspelled(operation)),
            *((user, operation.at()) for user in ("rob", "sam")),
        ]:
            answer = closed.ask(user, operation.method, f"/~{address}", json={"name": "seized"})
            allowed = {404, 405}
            if user == "rob" and operation.method not in SAFE_METHODS:
                allowed = {403, 404, 405}
            assert answer.status_code in allowed, (user, operation.method, address)
            assert SECRET not in answer.text
            requests += 1
    assert requests > 600
    assert everything(closed.store) == before


def _misspelled(operation: Operation) -> Iterator[str]:
    for name in sorted(operation.integers):
        right = str(PRIVATE) if name == "campaign_id" else "1"
        for spelling in SPELLINGS:
            yield operation.at(**{name: spelling.format(right)})


def test_a_line_break_at_the_end_is_no_address_of_anything(closed: Group) -> None:
    for operation in operations(closed.app):
        if not operation.path.endswith("}") and operation.path != "/":
            answer = closed.ask("ann", operation.method, f"/~{operation.at()}%0a", json={})
            assert answer.status_code == 404, operation


def test_routes_without_a_campaign_tell_nothing_of_it(closed: Group) -> None:
    """A resource of the API refuses parameters that it does not have."""
    queries = {"search": "nobody", "ids": f"1,{PRIVATE}", "like": PRIVATE}
    for operation in operations(closed.app):
        if operation.method != "GET" or operation.integers:
            continue
        takes = queries if not operation.path.startswith("/api/") else operation.queries
        taken = [f"?{name}={value}" for name, value in queries.items() if name in takes]
        for query in ("", *taken):
            address = f"/~{operation.at()}{query}"
            assert SECRET not in closed.ask("rob", "GET", address).text, address


@pytest.mark.parametrize("user", ["sue", "ann"])
def test_its_owner_and_admins_come_in_by_its_own_address(closed: Group, user: str) -> None:
    """Last in this module: it changes the campaign."""
    for operation in operations(closed.app):
        if operation.integers and operation.method != "DELETE":
            answer = closed.ask(user, operation.method, f"/~{operation.at()}", json={})
            is_there = answer.status_code != 404
            assert is_there or (operation.method, operation.path) in EMPTY, operation


def test_every_operation_not_known_as_safe_needs_submit_rights(closed: Group) -> None:
    written = [each for each in operations(closed.app) if each.method not in SAFE_METHODS]
    assert {each.path for each in written} >= ASKING - {"/leave"}
    for operation in written:
        answer = closed.ask("rob", operation.method, f"/~{operation.at()}", content=b"{}")
        if operation.path not in ASKING | {"/enter"}:
            assert answer.status_code in {403, 404}, operation
            assert "this needs" in answer.json()["detail"]
