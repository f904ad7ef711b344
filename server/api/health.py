"""Whether the service is alive, and whether it can work."""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal

from fastapi import APIRouter
from fastapi.responses import Response

from autotune.schemas import Wire
from server.api.dependencies import StoreOf, problems
from server.problems import damaged, problem

router = APIRouter(tags=["health"])


class Health(Wire):
    """The service can do this."""

    status: Literal["ok"] = "ok"
    """Always `ok`; where it is not, the answer is a problem."""


@router.get("/healthz")
def alive() -> Health:
    """Tell that the process answers."""
    return Health()


@router.get("/readyz", response_model=Health, responses=problems(503))
def ready(store: StoreOf) -> Health | Response:
    """Tell whether the database answers, is whole, and has the schema that this version expects."""
    if damage := store.damage():
        return damaged(damage)
    if fault := store.schema_fault():
        detail = f"the database does not fit this service: {fault}"
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, detail)
    return Health()
