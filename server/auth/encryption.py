"""Checks that connections cannot be read by others: loopback, a Unix socket, TLS, a trusted
proxy."""

from __future__ import annotations

import ssl

from starlette.types import Scope

from autotune.client.address import is_loopback
from search_spaces.errors import InvalidInput
from server.settings import Settings

PEER = "autotune.peer"
"""Key in a request's scope of the address of the connection, which may be a proxy's; None for a
Unix socket."""


class Encryption:
    """Checks connections against the settings."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._proxies = frozenset(settings.proxy_addresses)

    @property
    def lacks(self) -> bool:
        """Whether the service listens to a network without TLS."""
        settings = self._settings
        return not (settings.tls_cert or settings.socket or is_loopback(settings.host))

    def demand(self) -> None:
        """Raise InvalidInput if tokens could be read on the network, or TLS cannot be used."""
        settings = self._settings
        if settings.tls_cert is not None:
            try:
                context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
                # An empty password, so that OpenSSL does not prompt for that of a locked key.
                context.load_cert_chain(settings.tls_cert, settings.tls_key, password="")
            except OSError as error:  # SSLError among them
                value, reason = str(settings.tls_cert), f"TLS cannot use it: {error}"
                valid = "PEM files of a certificate and, as tls_key, of its key"
                raise InvalidInput("tls_cert", value, reason, valid=valid) from None
        if self.lacks and not settings.insecure_http and all(map(is_loopback, self._proxies)):
            reason = "HTTP is not encrypted: whoever listens on the network could read tokens"
            valid = (
                "127.0.0.1; tls_cert and tls_key; a proxy with TLS, named in "
                "AUTOTUNE_PROXY_ADDRESSES; or insecure_http to do without"
            )
            raise InvalidInput("host", settings.host, reason, valid=valid)

    def covers(self, scope: Scope) -> bool:
        """Return whether a request is protected from others, or `insecure_http` is set."""
        if self._settings.insecure_http or scope["scheme"] == "https" or is_socket(scope):
            return True
        return is_loopback(scope["server"][0]) or self.is_proxied(scope)

    def is_proxied(self, scope: Scope) -> bool:
        """Return whether a request came from a trusted proxy."""
        peer = scope.get(PEER) or scope.get("client")
        return is_socket(scope) or (peer is not None and peer[0] in self._proxies)


def is_socket(scope: Scope) -> bool:
    """Return whether a request came through a Unix socket."""
    return scope.get("server") is None or scope["server"][1] is None
