"""Keeps other sites' pages, opened in a user's browser, from using the service."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address
from socket import gethostname
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from autotune.client.known_services import is_loopback
from autotune.schemas.wire import FieldProblem
from server.problems import problem
from server.settings import Settings

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
INERT = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
}
"""Headers of responses that are not pages; a browser may use only a figure's inline styles."""


@dataclass(frozen=True, kw_only=True)
class TrustedHosts:
    """The host names of the service.

    A request for another name comes from a page whose name was made to resolve to this machine (DNS
    rebinding). IP addresses cannot be rebound: a service that listens on the network, and does not
    know its addresses, accepts all of them.
    """

    names: frozenset[str]
    any_address: bool

    @classmethod
    def of(cls, settings: Settings) -> TrustedHosts:
        names = LOOPBACK_NAMES | {settings.host.lower()}
        names |= {name.lower() for name in settings.allowed_hosts}
        if is_loopback(settings.host):
            return cls(names=names, any_address=False)
        own = gethostname().lower()
        return cls(names=names | {own, own.partition(".")[0]}, any_address=True)

    def __contains__(self, name: str) -> bool:
        return name in self.names or (self.any_address and _is_address(name))


class OriginGuard:
    """Middleware that refuses requests for unknown host names, and cross-origin writes.

    Responses without these headers get INERT, so that browsers do not run, frame or sniff them.
    """

    def __init__(self, app: ASGIApp, *, hosts: TrustedHosts) -> None:
        self.app = app
        self.hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in INERT.items():
                    headers.setdefault(name, value)
            await send(message)

        await (self._refusal(scope) or self.app)(scope, receive, marked)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if host_name(host) not in self.hosts:
            reason = "the service does not go by this name"
            known = ", ".join(sorted(self.hosts.names))
            valid = f"{known}, or a name listed in AUTOTUNE_ALLOWED_HOSTS"
            named = FieldProblem(field="Host", value=host, reason=reason, valid=valid)
            return problem(HTTPStatus.MISDIRECTED_REQUEST, reason, errors=[named])
        own = f"{scope['scheme']}://{host}"
        if scope["method"] not in SAFE_METHODS and origin not in {None, own}:
            # Browsers send Origin with every write; other clients send none.
            reason = "only this service's own pages may change something"
            named = FieldProblem(field="Origin", value=origin, reason=reason)
            return problem(HTTPStatus.FORBIDDEN, reason, errors=[named])
        return None


def host_name(authority: str) -> str:
    """Return the name in `name:port`; empty if it is invalid."""
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
