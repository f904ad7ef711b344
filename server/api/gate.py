"""The gate around everything: it tells who asks, and lets in those who may use the service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie

import structlog
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from autotune.schemas import UserScope
from server.api.access import Access, caller_for
from server.api.callers import CALLER
from server.api.metrics import MetricsToken
from server.api.origin import INERT
from server.encryption import Encryption
from server.problems import problem
from server.settings import Settings
from server.store.errors import DatabaseReplaced
from server.store.failures import cause
from server.store.users import Account

ENTRANCE = "/enter"
OPEN_TO_ALL = frozenset({"/healthz", "/readyz"})
STATIC = "/static/"
SCHEME = "Bearer "
OWN_SOCKET = "autotune.own_socket"
"""What the state of a connection has that came through the socket which the service's own user
alone can open."""
ASK = (
    "a token is needed: that of service.json in the data folder, which AUTOTUNE_TOKEN names on "
    "another machine; `autotune` needs none where the service runs, and a browser is let in by the "
    "address that `autotune open` prints there"
)
ASK_USER = (
    "a user's token is needed: `autotune login` keeps the one that an admin gave you, "
    "AUTOTUNE_TOKEN names it; a browser is let in on the page of this service"
)
NOT_KNOWN = (
    "the token is not this service's: a service that was started again has another, unless a file "
    "holds it, and a user's may have been renewed"
)
UNENCRYPTED = (
    "HTTP is not encrypted, and whoever listens on the network could read tokens and answers: use "
    "https, or a tunnel to loopback (ssh -L); an admin may allow it by AUTOTUNE_INSECURE_HTTP"
)
log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Identified:
    """Who sent a request.

    Attributes:
        account: None where nobody is let in.
        refusal: why not, in a sentence.
    """

    account: Account | None
    refusal: str = ""


class Gate:
    """Middleware around everything: serves those who may use the service, and nobody over a
    connection that others could read.

    Args:
        locked_page: returns the page that a browser without a session gets, from where it then
            goes on to an address of this service.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        access: Access,
        settings: Settings,
        locked_page: Callable[[Request, str], Response],
    ) -> None:
        self.app = app
        self.access = access
        self.locked_page = locked_page
        self.encryption = Encryption(settings)
        self.metrics_token = MetricsToken(settings.metrics_token_file)
        self.user_header = settings.proxy_user_header
        self.new_users: UserScope | None = settings.proxy_new_users or None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or is_open(scope["path"]):
            await self.app(scope, receive, send)
            return
        if not self.encryption.covers(scope):
            await problem(HTTPStatus.FORBIDDEN, UNENCRYPTED, headers=INERT)(scope, receive, send)
            return
        try:
            who = await self._identified(scope)
        except (DBAPIError, PoolTimeout, DatabaseReplaced) as error:
            log.error("users_unreadable", error=cause(error))
            detail = "the database does not answer now, so that nobody is known"
            headers = {**INERT, "Retry-After": "2"}
            busy = problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers=headers)
            await busy(scope, receive, send)
            return
        if who.account is not None:
            scope[CALLER] = caller_for(who.account)
        elif scope["path"] != ENTRANCE:
            await self._refuse(who.refusal, scope, receive, send)
            return
        await self.app(scope, receive, send)

    async def _identified(self, scope: Scope) -> Identified:
        if not self.access.is_group:
            return self._identify(scope)
        return await run_in_threadpool(self._identify, scope)

    def _identify(self, scope: Scope) -> Identified:
        """Return who sent a request: by the socket it came through, a proxy's word, the token or
        the session's cookie that it carries."""
        headers = Headers(scope=scope)
        presented = headers.get("authorization", "").removeprefix(SCHEME)
        if scope.get("state", {}).get(OWN_SOCKET) and not presented:
            return Identified(account=self.access.account(""))
        named = self.user_header and self.user_header in headers
        if named and self.encryption.is_proxied(scope):
            return self._named_by_proxy(headers)
        if self.metrics_token.lets_in(presented, scope["path"]):
            return Identified(account=self.access.account(""))
        if presented:
            return self._settled(self.access.known(presented), NOT_KNOWN)
        ask = ASK_USER if self.access.is_group else ASK
        return self._settled(self.access.of_session(session_of(headers)), ask)

    def _settled(self, account: Account | None, refusal: str) -> Identified:
        """Return the one whom an account lets in, unless it was revoked; `refusal` says why nobody
        is where there is none."""
        if account is None:
            return Identified(account=None, refusal=refusal)
        if account.revoked:
            reason = f"the user {account.name} was revoked; an admin can let them in again"
            return Identified(account=None, refusal=reason)
        self.access.note_use(account)
        return Identified(account=account)

    def _named_by_proxy(self, headers: Headers) -> Identified:
        named = headers.getlist(self.user_header)
        if len(named) != 1:
            return Identified(account=None, refusal=f"{self.user_header} is there several times")
        account = self.access.admitted(named[0], scope=self.new_users)
        shown = named[0][:64]
        return self._settled(account, f"{shown!r} is no user of this service; an admin adds users")

    async def _refuse(self, reason: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401: to a browser that opens a page with a page, to all else with a problem."""
        wants_page = "text/html" in Headers(scope=scope).get("accept", "")
        if wants_page and not scope["path"].startswith("/api/"):
            request = Request(scope)
            page = self.locked_page(request, _own_address(request))
            await page(scope, receive, send)
            return
        headers = {**INERT, "WWW-Authenticate": "Bearer"}
        refused = problem(HTTPStatus.UNAUTHORIZED, reason, headers=headers)
        await refused(scope, receive, send)


def _own_address(request: Request) -> str:
    query = f"?{request.url.query}" if request.url.query else ""
    return f"{request.url.path}{query}"


def is_open(path: str) -> bool:
    """Return whether a path says nothing of anybody's, so that all may ask for it."""
    return path in OPEN_TO_ALL or path.startswith(STATIC)


def address_of(scope: Scope) -> str:
    """Return where a request came from; empty for a Unix socket."""
    client = scope.get("client")
    return client[0] if client else ""


def cookie_name(authority: str) -> str:
    """Return the name of a service's cookie. Browsers send cookies to all ports of a host: each has
    a name of its own, so that two services of one user do not overwrite each other's."""
    port = authority.rpartition(":")[2]
    return f"autotune-{port}" if port.isdecimal() else "autotune"


def session_of(headers: Headers) -> str:
    """Return the session's cookie; empty where there is none."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(cookie_name(headers.get("host", "")))
    except CookieError:
        return ""
    return found.value if found else ""
