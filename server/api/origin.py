"""Keeps other sites' pages, opened in a user's browser, from using the service."""

from __future__ import annotations

from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from autotune.schemas import FieldProblem
from server.problems import problem
from server.settings import Settings

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def trusted_hosts(settings: Settings) -> frozenset[str] | None:
    """Return the names under which the service may be addressed; None where any will do.

    Bound to loopback, a request for another name comes from a page whose name was made to resolve
    to 127.0.0.1 (DNS rebinding). Bound to the network, its names are not known here.
    """
    if not is_loopback(settings.host):
        return None
    return LOOPBACK_NAMES | {settings.host} | set(settings.allowed_hosts)


class OriginGuard:
    """Refuses requests for names that are not the service's, and cross-origin writes."""

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str] | None) -> None:
        self.app = app
        self.hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self.app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that is not to be served; None for any other."""
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if self.hosts is not None and host_name(host) not in self.hosts:
            reason = "the service does not go by this name"
            valid = f"{', '.join(sorted(self.hosts))}, or a name listed in AUTOTUNE_ALLOWED_HOSTS"
            named = FieldProblem(field="Host", value=host, reason=reason, valid=valid)
            return problem(HTTPStatus.MISDIRECTED_REQUEST, reason, errors=[named])
        if scope["method"] not in SAFE_METHODS and not same_origin(origin, host):
            reason = "only this service's own pages may change something"
            named = FieldProblem(field="Origin", value=origin, reason=reason)
            return problem(HTTPStatus.FORBIDDEN, reason, errors=[named])
        return None


def host_name(authority: str) -> str:
    """Return the name in `name:port`; empty for what is neither."""
    try:
        return urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return ""


def same_origin(origin: str | None, host: str) -> bool:
    """Return whether a page of this service, or no page at all, sent the request.

    Browsers send Origin with every write; other clients send none.
    """
    return origin is None or origin.partition("://")[2] == host
