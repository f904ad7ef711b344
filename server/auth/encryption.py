"""Which connections nobody else can read: loopback, a Unix socket, TLS, that of a trusted proxy."""

from __future__ import annotations

import ssl

from starlette.types import Scope

from autotune.client.address import is_loopback
from search_spaces.errors import InvalidInput
from server.settings import Settings

PEER = "autotune.peer"
"""Key in a request's scope of the connection's address, which may be a proxy's; None for a Unix
socket."""


class Encryption:
    """What the settings say of connections."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._proxies = frozenset(settings.proxy_addresses)

    @property
    def lacks(self) -> bool:
        """Whether the service listens to a network without TLS."""
        settings = self._settings
        return not (settings.tls_cert or settings.socket or is_loopback(settings.host))

    def demand(self) -> None:
        """Raise InvalidInput where everybody's tokens could be read, or TLS cannot be used."""
        settings = self._settings
        if settings.tls_cert is not None:
            try:
                context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
                # With an empty password, so that nobody is asked for that of a locked key.
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
        """Return whether nobody else can read a request and its answer, or nobody minds."""
        if self._settings.insecure_http or scope["scheme"] == "https" or is_socket(scope):
            return True
        return is_loopback(scope["server"][0]) or self.is_proxied(scope)

    def is_proxied(self, scope: Scope) -> bool:
        """Return whether a request came from where a proxy is believed to be."""
        peer = scope.get(PEER) or scope.get("client")
        return is_socket(scope) or (peer is not None and peer[0] in self._proxies)


def is_socket(scope: Scope) -> bool:
    """Return whether a request came through a Unix socket."""
    return scope.get("server") is None or scope["server"][1] is None
