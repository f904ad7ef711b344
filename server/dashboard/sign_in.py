"""The sign-in page: a browser's key or a user's token becomes a session."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import Response

from server.api.dependencies import AuthenticatorOf
from server.auth.authentication import (
    SIGN_IN,
    NotAuthenticated,
    address_of,
    caller_for,
    cookie_name,
    session_of,
)
from server.auth.permissions import CALLER
from server.dashboard.rendering import render

router = APIRouter(include_in_schema=False)
LONGEST_FORM = 4096


@router.get(SIGN_IN)
def enter(
    request: Request,
    authenticator: AuthenticatorOf,
    key: Annotated[str, Query(max_length=200)] = "",
    to: Annotated[str, Query(max_length=2000)] = "/",
) -> Response:
    """Start a session for a browser with a one-time key, and redirect it to a page of this
    service."""
    cookie = authenticator.redeem(key)
    if cookie is None:
        try:
            authenticator.by_session(session_of(request.headers))
        except NotAuthenticated:
            return sign_in_page(request, to=_own(to))
    return _let_in(request, cookie, to)


@router.post(SIGN_IN)
async def sign_in(request: Request, authenticator: AuthenticatorOf) -> Response:
    """Start a session for a browser whose user enters a token."""
    body = await request.body()
    form = parse_qs(body[:LONGEST_FORM].decode("utf-8", "replace"))
    token, to = form.get("token", [""])[0].strip(), _own(form.get("to", ["/"])[0])
    try:
        account, cookie = await run_in_threadpool(
            authenticator.sign_in, token, address=address_of(request.scope)
        )
    except NotAuthenticated as refusal:
        return sign_in_page(request, to=to, refusal=str(refusal), status=refusal.status)
    request.scope[CALLER] = caller_for(account)
    return _let_in(request, cookie, to)


@router.post("/leave")
def sign_out(request: Request, authenticator: AuthenticatorOf) -> Response:
    authenticator.sign_out(session_of(request.headers))
    answer = sign_in_page(request, status=HTTPStatus.OK)
    answer.delete_cookie(cookie_name(request.headers.get("host", "")))
    return answer


def sign_in_page(
    request: Request,
    *,
    to: str = "/",
    refusal: str = "",
    status: int = HTTPStatus.UNAUTHORIZED,
) -> Response:
    group = request.app.state.authenticator.is_group
    context = {"here": "locked", "group": group, "to": to, "refusal": refusal}
    return render(request, "locked.html", context, status=status)


def _own(to: str) -> str:
    own = to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable()
    return to if own else "/"


def _let_in(request: Request, cookie: str | None, to: str) -> Response:
    # A page instead of a redirect: browsers do not send SameSite=Strict cookies after a link from
    # another site.
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
