"""Keys with which browsers sign in, and who asks."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter

from autotune.schemas import BrowserKey, WhoAmI
from server.api.dependencies import AuthenticatorOf, problems
from server.auth.permissions import CallerOf

router = APIRouter(tags=["access"])


@router.post("/browser-keys", status_code=HTTPStatus.CREATED, responses=problems(403))
def create(authenticator: AuthenticatorOf, caller: CallerOf) -> BrowserKey:
    """Make a key with which one browser may come in, once, as who asks: at `/enter?key=…`."""
    return BrowserKey(key=authenticator.new_key(caller.name))


@router.get("/whoami", responses=problems())
def whoami(authenticator: AuthenticatorOf, caller: CallerOf) -> WhoAmI:
    """Tell who asks, as the service knows them."""
    return WhoAmI(name=caller.name, scope=caller.scope, group=authenticator.is_group)
