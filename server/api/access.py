"""Sign-in keys for browsers, and the caller's identity."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter

from autotune.schemas.users import BrowserKey, WhoAmI
from server.api.dependencies import AuthenticatorOf, problems
from server.auth.permissions import CallerOf

router = APIRouter(tags=["access"])


@router.post("/browser-keys", status_code=HTTPStatus.CREATED, responses=problems(403))
def create(authenticator: AuthenticatorOf, caller: CallerOf) -> BrowserKey:
    """Create a key with which one browser can sign in once as the caller: at `/enter?key=…`."""
    return BrowserKey(key=authenticator.new_key(caller.name))


@router.get("/whoami", responses=problems())
def whoami(authenticator: AuthenticatorOf, caller: CallerOf) -> WhoAmI:
    """Return the caller's identity and scope."""
    return WhoAmI(name=caller.name, scope=caller.scope, group=authenticator.is_group)
