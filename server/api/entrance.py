"""Keys with which browsers come in, and who asks."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, Request

from autotune.schemas import BrowserKey, WhoAmI
from server.api.access import Access
from server.api.callers import CallerOf
from server.api.dependencies import problems

router = APIRouter(tags=["access"])


@router.post("/browser-keys", status_code=HTTPStatus.CREATED, responses=problems(403))
def create(request: Request, caller: CallerOf) -> BrowserKey:
    """Make a key with which one browser may come in, once, as who asks: at `/enter?key=…`."""
    access: Access = request.app.state.access
    return BrowserKey(key=access.new_key(caller))


@router.get("/whoami", responses=problems())
def whoami(request: Request, caller: CallerOf) -> WhoAmI:
    """Tell who asks, as the service knows them."""
    access: Access = request.app.state.access
    return WhoAmI(name=caller.name, scope=caller.scope, group=access.is_group)
