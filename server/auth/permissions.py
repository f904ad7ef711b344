"""Permissions of the user who sent a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import select
from sqlalchemy.orm import Session
from starlette.types import Scope

from autotune.schemas.choices import UserScope
from autotune.schemas.users import SCOPES
from server.auth.origin import SAFE_METHODS
from server.store import NotFound, Store
from server.store.errors import NotAllowed
from server.store.tables import CampaignRow

CALLER = "autotune.caller"
"""Key of the caller in a request's scope; missing only for paths without authentication."""

ASKING = frozenset(
    {
        "/api/v1/browser-keys",
        "/api/v1/diagnoses",
        "/api/v1/plans",
        "/api/v1/predictions",
        "/fragments/diagnosis",
        "/fragments/memory",
        "/fragments/plan",
        "/fragments/scaling",
        "/fragments/shape",
        "/leave",
    }
)
"""Paths with a POST that changes nothing for other users."""
FOR_ADMINS = ("/api/v1/users", "/group")


@dataclass(frozen=True, kw_only=True)
class Caller:
    """The user who sent a request.

    Attributes:
        name: None for the service's own user, who has all rights.
    """

    name: str | None
    scope: UserScope

    @property
    def is_admin(self) -> bool:
        return self.scope == "admin"

    @property
    def reader(self) -> str | None:
        return None if self.is_admin else self.name

    @property
    def shown(self) -> str:
        return self.name or "the service's own user"

    def has(self, scope: UserScope) -> bool:
        return SCOPES.index(self.scope) >= SCOPES.index(scope)

    def sees(self, *, owner: str | None, private: bool) -> bool:
        return not private or self.owns(owner)

    def owns(self, owner: str | None) -> bool:
        return self.is_admin or (owner is not None and owner == self.name)

    def changes(self, owner: str | None) -> bool:
        return self.has("submit") and self.owns(owner)


SERVICE = Caller(name=None, scope="admin")


def caller_of(scope: Scope) -> Caller:
    caller: Caller = scope[CALLER]
    return caller


async def _caller(request: Request) -> Caller:
    return caller_of(request.scope)


CallerOf = Annotated[Caller, Depends(_caller)]


async def within_scope(request: Request) -> None:
    caller = request.scope.get(CALLER)
    if caller is not None and not caller.is_admin:
        _demand(caller, _needed(request.scope["path"], writes=_writes(request)))


async def demand_rights(request: Request, campaign_id: int) -> None:
    """Check that the caller may make this request about a campaign.

    Raises:
        NotFound: the caller cannot see the campaign.
        NotAllowed: the request changes a campaign of another user.
    """
    caller = caller_of(request.scope)
    if not caller.is_admin:
        store: Store = request.app.state.store
        await run_in_threadpool(_held, store, caller, campaign_id, writes=_writes(request))


def _writes(request: Request) -> bool:
    return request.method not in SAFE_METHODS and request.scope["path"] not in ASKING


def _needed(path: str, *, writes: bool) -> UserScope:
    if path.startswith(FOR_ADMINS):
        return "admin"
    return "submit" if writes else "read"


def _demand(caller: Caller, scope: UserScope) -> None:
    if not caller.has(scope):
        raise NotAllowed(
            f"{caller.shown} has the scope {caller.scope}, and this needs {scope}, which an admin "
            "can give"
        )


def _held(store: Store, caller: Caller, campaign_id: int, *, writes: bool) -> None:
    with store.session() as session:
        owner = demand_seen(session, caller, campaign_id)
    if writes and not caller.changes(owner):
        whose = f"{owner}'s" if owner else "the service's own"
        raise NotAllowed(
            f"campaign {campaign_id} is {whose}: {caller.shown} may see it, and only its owner "
            "and admins may change it"
        )


def demand_seen(session: Session, caller: Caller, campaign_id: int) -> str | None:
    """Return the owner of a campaign that the caller may see; raises NotFound for any other."""
    query = select(CampaignRow.owner, CampaignRow.private).where(CampaignRow.id == campaign_id)
    found = session.execute(query).first()
    if found is None or not caller.sees(owner=found.owner, private=found.private):
        raise NotFound("campaign", campaign_id)
    owner: str | None = found.owner
    return owner
