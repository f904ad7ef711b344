"""Addresses that name no resource exactly are refused: a parameter too many, a line break."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from fastapi import HTTPException, Request
from fastapi.routing import APIRoute

from autotune.validation import MOST_UNKNOWN, shortened
from search_spaces.errors import InvalidInput, InvalidInputs, closest


async def exact_path(request: Request) -> None:
    """Answer 404 to a path that ends with a line break: the `$` of a route's pattern ignores it."""
    in_parameter = any(str(value).endswith("\n") for value in request.path_params.values())
    if request.scope["path"].endswith("\n") and not in_parameter:
        raise HTTPException(HTTPStatus.NOT_FOUND)


async def known_filters(request: Request) -> None:
    """Raise InvalidInputs for parameters of the query that the resource has not."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute):
        return
    known = list(dict.fromkeys(_filters(route.dependant)))
    unknown = [name for name in dict.fromkeys(request.query_params) if name not in known]
    problems = []
    for name in unknown[:MOST_UNKNOWN]:
        near = closest(name, known, count=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        reason = f"this resource has no such filter{hint}"
        valid = ", ".join(known) or "no filter"
        value = request.query_params[name]
        problems.append(InvalidInput(shortened(name), value, reason, valid=valid))
    if problems:
        raise InvalidInputs(problems)


def _filters(dependant: Any) -> Iterator[str]:
    """Yield the names of what a resource takes from the query, itself or by what it depends on."""
    yield from (field.alias for field in dependant.query_params)
    for other in dependant.dependencies:
        yield from _filters(other)
