"""The gate around everything: it tells who asks, and proves to them which service answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie

import structlog
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autotune.client.credentials import PROOF, SCHEME, Credential, TokenKeys
from autotune.schemas import UserScope
from server.api.access import Access, caller_for
from server.api.callers import CALLER
from server.api.metrics import MetricsToken
from server.api.origin import INERT, host_name, is_loopback
from server.dashboard.rendering import render
from server.problems import problem
from server.settings import Settings
from server.store.errors import DatabaseReplaced
from server.store.failures import cause
from server.store.users import Account

ENTRANCE = "/enter"
OPEN_TO_ALL = frozenset({"/healthz", "/readyz", ENTRANCE})
STATIC = "/static/"
ASK = (
    "the service's token is needed: `autotune` reads it from service.json in the data folder, on "
    "another machine from AUTOTUNE_TOKEN; a browser is let in by the address that `autotune open` "
    "prints"
)
ASK_USER = (
    "a user's token is needed: `autotune login` keeps the one that an admin gave you, "
    "AUTOTUNE_TOKEN names it; a browser is let in on the page of this service"
)
NOT_KNOWN = "the token is not this service's, or is meant for another address than this one"
TOO_OLD = "the request was made more than five minutes ago, or the clocks of the machines differ"
PEER = "autotune.peer"
"""Where a request's scope has the address of the connection's other end, a proxy's where there is
one; None for a Unix socket."""
log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Identified:
    """Who sent a request.

    Attributes:
        account: None where nobody is let in.
        refusal: why not, in a sentence.
        credential: that the answer is to be proven for, by `keys`.
    """

    account: Account | None
    refusal: str = ""
    credential: Credential | None = None
    keys: TokenKeys | None = None


class Gate:
    """Middleware around everything: serves those who may use the service, and proves to those who
    know a token that this is the service that they mean."""

    def __init__(self, app: ASGIApp, *, access: Access, settings: Settings) -> None:
        self.app = app
        self.access = access
        self.on_network = not is_loopback(settings.host)
        self.names = frozenset(name.lower() for name in settings.allowed_hosts)
        self.metrics_token = MetricsToken(settings.metrics_token_file)
        self.user_header = settings.proxy_user_header
        self.proxies = frozenset(settings.proxy_addresses)
        self.new_users: UserScope | None = settings.proxy_new_users or None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
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
        if who.credential is not None and who.keys is not None:
            send = _proving(who.credential, who.keys, send)
        if who.account is not None:
            scope[CALLER] = caller_for(who.account)
        if who.account is None and not is_open(scope["path"]):
            await self._refuse(who.refusal, scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _identified(self, scope: Scope) -> Identified:
        if not self.access.is_group:
            return self._identify(scope)
        if scope["path"].startswith(STATIC):
            return Identified(account=None)
        return await run_in_threadpool(self._identify, scope)

    def _identify(self, scope: Scope) -> Identified:
        """Return who sent a request, by what it carries: a credential, a proxy's word, a token, or
        a session's cookie."""
        headers = Headers(scope=scope)
        presented = headers.get("authorization", "").removeprefix(SCHEME)
        credential = Credential.read(presented)
        if credential is not None:
            account = self.access.account(credential.user)
            keys = account.keys if account else None
            if account and keys and self._is_for_this(credential, keys, scope, headers):
                refusal = "" if credential.is_current else TOO_OLD
                return self._settled(account, refusal, credential, keys)
        if self.user_header and self._is_proxied(scope) and self.user_header in headers:
            return self._named_by_proxy(headers)
        if self.metrics_token.lets_in(presented, scope["path"]):
            return self._settled(self.access.account(""), "")
        if presented:
            return self._settled(self.access.known(presented), NOT_KNOWN)
        return self._settled(self.access.of_session(session_of(headers)), self._ask)

    def _settled(
        self,
        account: Account | None,
        refusal: str,
        credential: Credential | None = None,
        keys: TokenKeys | None = None,
    ) -> Identified:
        """Return the one whom an account lets in, unless it was revoked or `refusal`, with a
        credential, says why not."""
        if account is not None and account.revoked:
            refusal = f"the user {account.name} was revoked; an admin can let them in again"
            account = None
        elif account is not None and (credential is None or not refusal):
            self.access.note_use(account)
            return Identified(account=account, credential=credential, keys=keys)
        return Identified(account=None, refusal=refusal, credential=credential, keys=keys)

    def _named_by_proxy(self, headers: Headers) -> Identified:
        named = headers.getlist(self.user_header)
        if len(named) != 1:
            return Identified(account=None, refusal=f"{self.user_header} is there several times")
        account = self.access.admitted(named[0], scope=self.new_users)
        shown = named[0][:64]
        return self._settled(account, f"{shown!r} is no user of this service; an admin adds users")

    def _is_proxied(self, scope: Scope) -> bool:
        """Return whether a request came from where the proxy is believed to be."""
        if scope.get("server") is None or scope["server"][1] is None:
            return True  # a Unix socket
        peer = scope.get(PEER) or scope.get("client")
        return peer is not None and peer[0] in self.proxies

    @property
    def _ask(self) -> str:
        return ASK_USER if self.access.is_group else ASK

    def _is_for_this(
        self, credential: Credential, keys: TokenKeys, scope: Scope, headers: Headers
    ) -> bool:
        """Return whether a credential was issued with this token, for this request to here.

        One for another address came through somebody who listens there, and may read along.
        """
        target = scope.get("raw_path", b"").decode("ascii", "replace")
        if query := scope["query_string"].decode("ascii", "replace"):
            target = f"{target}?{query}"
        return any(
            keys.signed(credential, audience=audience, method=scope["method"], target=target)
            for audience in self._audiences(scope, headers.get("host", ""))
        )

    def _audiences(self, scope: Scope, authority: str) -> Iterator[str]:
        """Yield the addresses under which clients may mean this service.

        The first is where the connection arrived. The name that was asked for is another one where
        it is allowed by name, where the service listens to the network and the port is its own (its
        addresses may be translated on the way), and on a Unix socket, which only its user opens.
        """
        host, port = scope.get("server") or ("", None)
        if port is not None:
            yield f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        default = 443 if scope["scheme"] == "https" else 80
        asked = authority.lower()
        asked = asked if asked.rpartition(":")[2].isdecimal() else f"{asked}:{default}"
        same_port = asked.rpartition(":")[2] == str(port)
        named = host_name(authority) in self.names
        if port is None or named or (self.on_network and same_port):
            yield asked

    async def _refuse(self, reason: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401: to a browser that opens a page with a page, to all else with a problem."""
        wants_page = "text/html" in Headers(scope=scope).get("accept", "")
        if wants_page and not scope["path"].startswith("/api/"):
            request = Request(scope)
            page = locked_page(request, self.access, to=_own_address(request))
            await page(scope, receive, send)
            return
        headers = {**INERT, "WWW-Authenticate": "Bearer"}
        refused = problem(HTTPStatus.UNAUTHORIZED, reason, headers=headers)
        await refused(scope, receive, send)


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


def _proving(credential: Credential, keys: TokenKeys, send: Send) -> Send:
    async def proving(message: Message) -> None:
        if message["type"] == "http.response.start":
            proof = keys.proof(credential, status=message["status"])
            MutableHeaders(scope=message)[PROOF] = proof
        await send(message)

    return proving
