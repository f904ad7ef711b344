"""Letting browsers in: an address that works once, and the session that it becomes."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from autotune.schemas import BrowserKey
from server.api.access import ENTRANCE, Access, cookie_name, session_of
from server.api.dependencies import problems
from server.dashboard.rendering import render

router = APIRouter(tags=["access"])
entrance = APIRouter(include_in_schema=False)


@router.post("/browser-keys", status_code=HTTPStatus.CREATED, responses=problems(403))
def create(request: Request) -> BrowserKey:
    """Make a key with which one browser may come in, once: at `/enter?key=…`."""
    access: Access = request.app.state.access
    return BrowserKey(key=access.new_key())


@entrance.get(ENTRANCE)
def enter(
    request: Request,
    key: Annotated[str, Query(max_length=200)] = "",
    to: Annotated[str, Query(max_length=2000)] = "/",
) -> Response:
    """Give the browser that has the key its session, and lead it to a page of this service."""
    access: Access = request.app.state.access
    cookie = access.session(key)
    if cookie is None and not access.knows_session(session_of(request.headers)):
        context = {"here": "locked"}
        return render(request, "locked.html", context, status=HTTPStatus.UNAUTHORIZED)
    own = to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable()
    # A page that leads on, and no redirect: what follows another site's link is sent no cookie.
    answer = render(request, "entered.html", {"here": "entered", "to": to if own else "/"})
    if cookie is not None:
        name = cookie_name(request.headers.get("host", ""))
        answer.set_cookie(
            name,
            cookie,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
    return answer
