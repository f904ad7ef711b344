"""Users of a shared service, and the audit log: for admins only."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Response
from pydantic import AwareDatetime

from autotune.schemas.users import USER_NAME, AuditPage, NewToken, User, UserChange, UserCreate
from server.api.dependencies import LARGEST_ID, Cursor, StoreOf, problems
from server.store.audit import audit_page
from server.store.users import (
    add_user,
    change_user,
    get_user,
    list_users,
    renew_user,
    revoke_user,
)

router = APIRouter(tags=["users"])

UserNamed = Annotated[
    str,
    Path(pattern=USER_NAME, max_length=64, description="Name of the user.", examples=["bob"]),
]
ADDED: dict[str, Any] = {
    "who may submit": {
        "value": {"name": "bob", "scope": "submit", "most_campaigns": 5, "node_hours_a_month": 200}
    }
}
CHANGED: dict[str, Any] = {"more node-hours": {"value": {"node_hours_a_month": 400}}}


@router.get("/users", response_description="All users.", responses=problems(403))
def listing(store: StoreOf) -> list[User]:
    """List all users by name, including revoked ones."""
    with store.session() as session:
        return list_users(session)


@router.post("/users", status_code=HTTPStatus.CREATED, responses=problems(403, 409, 507))
def create(
    request: Annotated[UserCreate, Body(openapi_examples=ADDED)],
    response: Response,
    store: StoreOf,
) -> NewToken:
    """Add a user and return the token, which is returned only once."""
    with store.transaction() as session:
        token = add_user(session, request)
    response.headers["Cache-Control"] = "no-store"
    return NewToken(name=request.name, token=token)


@router.get("/users/{name}", responses=problems(403, 404))
def read(name: UserNamed, store: StoreOf) -> User:
    """Return one user."""
    with store.session() as session:
        return get_user(session, name)


@router.patch("/users/{name}", responses=problems(403, 404, 507))
def change(
    name: UserNamed,
    request: Annotated[UserChange, Body(openapi_examples=CHANGED)],
    store: StoreOf,
) -> User:
    """Change a user's scope, limits or address."""
    with store.transaction() as session:
        return change_user(session, name, request.model_dump(exclude_unset=True))


@router.post("/users/{name}/renew", responses=problems(403, 404, 507))
def renew(name: UserNamed, response: Response, store: StoreOf) -> NewToken:
    """Replace a user's token; a revoked user is admitted again."""
    with store.transaction() as session:
        token = renew_user(session, name)
    response.headers["Cache-Control"] = "no-store"
    return NewToken(name=name, token=token)


@router.post("/users/{name}/revoke", responses=problems(403, 404, 507))
def revoke(name: UserNamed, store: StoreOf) -> User:
    """Revoke a user's access, including browser sessions; the user's campaigns continue."""
    with store.transaction() as session:
        return revoke_user(session, name)


@router.get("/audit", responses=problems(403))
def audit(
    store: StoreOf,
    user: Annotated[
        str,
        Query(
            pattern=r"^[A-Za-z0-9._@+-]*$", max_length=64, description="Only requests of this user."
        ),
    ] = "",
    campaign: Annotated[
        int | None, Query(ge=1, le=LARGEST_ID, description="Only about this campaign.")
    ] = None,
    since: Annotated[AwareDatetime | None, Query(description="Only from this time on.")] = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum changes of a page.")] = 100,
) -> AuditPage:
    """List requested changes with their users and response statuses, newest first."""
    with store.session() as session:
        return audit_page(
            session,
            user=user or None,
            campaign_id=campaign,
            since=since,
            cursor=cursor,
            limit=limit,
        )
