"""Query parameters that a resource does not know are refused, and not passed over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute

from search_spaces.errors import InvalidInput, InvalidInputs, closest


async def known_filters(request: Request) -> None:
    """Raise InvalidInputs for parameters of the query that the resource has not."""
    route = request.scope.get("route")
    if not isinstance(route, APIRoute):
        return
    known = list(dict.fromkeys(_filters(route.dependant)))
    problems = []
    for name in dict.fromkeys(request.query_params):
        if name not in known:
            near = closest(name, known, count=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            reason = f"this resource has no such filter{hint}"
            valid = ", ".join(known) or "no filter"
            value = request.query_params[name]
            problems.append(InvalidInput(name, value, reason, valid=valid))
    if problems:
        raise InvalidInputs(problems)


def _filters(dependant: Any) -> Iterator[str]:
    """Yield the names of what a resource takes from the query, itself or by what it depends on."""
    yield from (field.alias for field in dependant.query_params)
    for other in dependant.dependencies:
        yield from _filters(other)
