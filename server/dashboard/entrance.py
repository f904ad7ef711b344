"""Letting browsers in: an address that works once, or a token, and the session that it becomes."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from server.api.access import Access, caller_for
from server.api.callers import CALLER
from server.api.gate import ENTRANCE, address_of, cookie_name, session_of
from server.dashboard.rendering import render

router = APIRouter(include_in_schema=False)
LONGEST_FORM = 4096
UNKNOWN = "No user of this service has this token."
TOO_OFTEN = "Too many tokens were wrong. Wait some minutes before the next one."
REVOKED = "This user was revoked. An admin can let you in again."


@router.get(ENTRANCE)
def enter(
    request: Request,
    key: Annotated[str, Query(max_length=200)] = "",
    to: Annotated[str, Query(max_length=2000)] = "/",
) -> Response:
    """Give the browser that has the key its session, and lead it to a page of this service."""
    access: Access = request.app.state.access
    cookie = access.session(key)
    if cookie is None and access.of_session(session_of(request.headers)) is None:
        return locked_page(request, access, to=_own(to))
    return _let_in(request, cookie, to)


@router.post(ENTRANCE)
async def sign_in(request: Request) -> Response:
    """Give the browser whose user has the token a session."""
    access: Access = request.app.state.access
    body = await request.body()
    told = parse_qs(body[:LONGEST_FORM].decode("utf-8", "replace"))
    token, to = told.get("token", [""])[0].strip(), _own(told.get("to", ["/"])[0])
    address = address_of(request.scope)
    if not access.may_try(address, token):
        status = HTTPStatus.TOO_MANY_REQUESTS
        return locked_page(request, access, to=to, refusal=TOO_OFTEN, status=status)
    account = await run_in_threadpool(access.known, token)
    if account is None:
        access.note_failure(address, token)
        return locked_page(request, access, to=to, refusal=UNKNOWN)
    if account.revoked:
        return locked_page(request, access, to=to, refusal=REVOKED)
    request.scope[CALLER] = caller_for(account)
    return _let_in(request, access.sign_in(account), to)


@router.post("/leave")
def sign_out(request: Request) -> Response:
    """End the browser's session."""
    access: Access = request.app.state.access
    access.sign_out(session_of(request.headers))
    answer = locked_page(request, access, status=HTTPStatus.OK)
    answer.delete_cookie(cookie_name(request.headers.get("host", "")))
    return answer


def _own(to: str) -> str:
    """Return a page of this service: the one asked for, or the first."""
    own = to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable()
    return to if own else "/"


def _let_in(request: Request, cookie: str | None, to: str) -> Response:
    # A page that leads on, and no redirect: what follows another site's link is sent no cookie.
    answer = render(request, "entered.html", {"here": "entered", "to": _own(to)})
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


def locked_page(
    request: Request,
    access: Access,
    *,
    to: str = "/",
    refusal: str = "",
    status: int = HTTPStatus.UNAUTHORIZED,
) -> Response:
    """Return the page of those who are not let in: with users it asks for a token."""
    context = {"here": "locked", "group": access.is_group, "to": to, "refusal": refusal}
    return render(request, "locked.html", context, status=status)
