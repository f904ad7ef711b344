"""Users of a shared service: for admins only."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Response

from autotune.schemas.users import USER_NAME, NewToken, User, UserCreate
from server.api.dependencies import StoreOf, problems
from server.store.users import (
    add_user,
    get_user,
    list_users,
    revoke_user,
)

router = APIRouter(tags=["users"])

UserNamed = Annotated[
    str,
    Path(pattern=USER_NAME, max_length=64, description="Name of the user.", examples=["bob"]),
]
ADDED: dict[str, Any] = {"who may submit": {"value": {"name": "bob", "scope": "submit"}}}


@router.get("/users", response_description="All users.", responses=problems(403))
def listing(store: StoreOf) -> list[User]:
    """List all users by name, including revoked ones."""
    with store.session() as session:
        return list_users(session)


@router.post("/users", status_code=HTTPStatus.CREATED, responses=problems(403, 507))
def create(
    request: Annotated[UserCreate, Body(openapi_examples=ADDED)],
    response: Response,
    store: StoreOf,
) -> NewToken:
    """Add a user and return the token, which is returned only once.

    A user who exists gets a new token, and the scope if one is given; one who was revoked is
    admitted again.
    """
    with store.transaction() as session:
        token = add_user(session, request)
    response.headers["Cache-Control"] = "no-store"
    return NewToken(name=request.name, token=token)


@router.get("/users/{name}", responses=problems(403, 404))
def read(name: UserNamed, store: StoreOf) -> User:
    """Return one user."""
    with store.session() as session:
        return get_user(session, name)


@router.post("/users/{name}/revoke", responses=problems(403, 404, 507))
def revoke(name: UserNamed, store: StoreOf) -> User:
    """Revoke a user's access, including browser sessions; the user's campaigns continue."""
    with store.transaction() as session:
        return revoke_user(session, name)
