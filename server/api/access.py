"""Who may use the service: whoever knows its token, and browsers that its user has let in."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterator
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autotune.client.credentials import PROOF, SCHEME, Credential, seal
from server.api.metrics import MetricsToken
from server.api.origin import INERT, host_name, is_loopback
from server.dashboard.rendering import render
from server.problems import problem
from server.settings import Settings

ENTRANCE = "/enter"
OPEN_TO_ALL = frozenset({"/healthz", "/readyz", ENTRANCE})
STATIC = "/static/"
MOST_KEYS = 100
ASK = (
    "the service's token is needed: `autotune` reads it from service.json in the data folder, on "
    "another machine from AUTOTUNE_TOKEN; a browser is let in by the address that `autotune open` "
    "prints"
)
NOT_KNOWN = "the token is not this service's, or is meant for another address than this one"
TOO_OLD = "the request was made more than five minutes ago, or the clocks of the machines differ"


class Access:
    """The token of this start of the service, and what it lets in.

    Args:
        token: one that is the service's at each start; None makes one of 32 random bytes.
    """

    def __init__(self, token: str | None = None) -> None:
        self.token = token or secrets.token_urlsafe(32)
        self._keys: dict[str, None] = {}

    def new_key(self) -> str:
        """Return a key with which one browser may come in, once."""
        while len(self._keys) >= MOST_KEYS:
            del self._keys[next(iter(self._keys))]
        key = secrets.token_urlsafe(24)
        self._keys[key] = None
        return key

    def session(self, key: str) -> str | None:
        """Return a session's cookie for a key, which is then worth nothing; None for no key."""
        if key not in self._keys:
            return None
        del self._keys[key]
        number = secrets.token_hex(16)
        return f"{number}.{seal(self.token, 'session', number)}"

    def knows_session(self, cookie: str) -> bool:
        number, _, sealed = cookie.partition(".")
        return _equal(sealed, seal(self.token, "session", number))


class Gate:
    """Middleware around everything: serves those who may use the service, and proves to those who
    know the token that this is the service that they mean."""

    def __init__(self, app: ASGIApp, *, access: Access, settings: Settings) -> None:
        self.app = app
        self.access = access
        self.on_network = not is_loopback(settings.host)
        self.names = frozenset(name.lower() for name in settings.allowed_hosts)
        self.metrics_token = MetricsToken(settings.metrics_token_file)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        presented = headers.get("authorization", "").removeprefix(SCHEME)
        credential = Credential.read(presented)
        if credential is not None and self._is_for_this(credential, scope, headers):
            send = self._proving(credential, send)
            refusal = "" if credential.is_current else TOO_OLD
        elif presented:
            known = _equal(presented, self.access.token)
            known = known or self.metrics_token.lets_in(presented, scope["path"])
            refusal = "" if known else NOT_KNOWN
        else:
            refusal = "" if self.access.knows_session(session_of(headers)) else ASK
        if refusal and not is_open(scope["path"]):
            await self._refuse(refusal, scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _is_for_this(self, credential: Credential, scope: Scope, headers: Headers) -> bool:
        """Return whether a credential was issued with this token, for this request to here.

        One for another address came through somebody who listens there, and may read along.
        """
        target = scope.get("raw_path", b"").decode("ascii", "replace")
        if query := scope["query_string"].decode("ascii", "replace"):
            target = f"{target}?{query}"
        return any(
            credential.is_of(
                self.access.token, audience=audience, method=scope["method"], target=target
            )
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

    def _proving(self, credential: Credential, send: Send) -> Send:
        async def proving(message: Message) -> None:
            if message["type"] == "http.response.start":
                proof = credential.proof(self.access.token, status=message["status"])
                MutableHeaders(scope=message)[PROOF] = proof
            await send(message)

        return proving

    async def _refuse(self, reason: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401: to a browser that opens a page with a page, to all else with a problem."""
        wants_page = "text/html" in Headers(scope=scope).get("accept", "")
        if wants_page and not scope["path"].startswith("/api/"):
            page = render(Request(scope), "locked.html", {"here": "locked"}, status=401)
            await page(scope, receive, send)
            return
        headers = {**INERT, "WWW-Authenticate": "Bearer"}
        refused = problem(HTTPStatus.UNAUTHORIZED, reason, headers=headers)
        await refused(scope, receive, send)


def is_open(path: str) -> bool:
    """Return whether a path says nothing of anybody's, so that all may ask for it."""
    return path in OPEN_TO_ALL or path.startswith(STATIC)


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


def _equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
