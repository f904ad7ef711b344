"""Health checks."""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal

from fastapi import APIRouter
from fastapi.responses import Response

from autotune.schemas.wire import Wire
from server.api.dependencies import StoreOf, problems
from server.problems import damaged, problem

router = APIRouter(tags=["health"])


class Health(Wire):
    """The service is healthy."""

    status: Literal["ok"] = "ok"
    """Always `ok`; otherwise the response is a problem."""


@router.get("/healthz")
def alive() -> Health:
    """Respond while the process is alive."""
    return Health()


@router.get("/readyz", response_model=Health, responses=problems(503))
def ready(store: StoreOf) -> Health | Response:
    """Check that the database responds, is undamaged, and has this version's schema."""
    if damage := store.damage():
        return damaged(damage)
    if fault := store.schema_fault():
        detail = f"the database does not fit this service: {fault}"
        return problem(HTTPStatus.SERVICE_UNAVAILABLE, detail)
    return Health()
