"""Connections that cannot be read by others: loopback, a Unix socket that only the service's own
user can open, TLS, a trusted proxy.
"""

from __future__ import annotations

import hashlib
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from starlette.types import Scope

from autotune.client.known_services import is_loopback, known_folder
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
        settings = self._settings
        return not (settings.tls_cert or settings.socket or is_loopback(settings.host))

    def demand(self) -> None:
        """Raise InvalidInput if tokens could be read on the network, or TLS cannot be used."""
        settings = self._settings
        if settings.tls_cert is not None:
            try:
                context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
                # An empty password, so that OpenSSL does not prompt for the password of a key.
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
        if self._settings.insecure_http or scope["scheme"] == "https" or is_socket(scope):
            return True
        return is_loopback(scope["server"][0]) or self.is_proxied(scope)

    def is_proxied(self, scope: Scope) -> bool:
        peer = scope.get(PEER) or scope.get("client")
        return is_socket(scope) or (peer is not None and peer[0] in self._proxies)


def is_socket(scope: Scope) -> bool:
    return scope.get("server") is None or scope["server"][1] is None


NAME = "service.sock"
BACKLOG = 128


class NoSocketThere(InvalidInput):
    """The path is too long, or the file system has no sockets."""


@contextmanager
def own_socket(data_dir: Path) -> Iterator[socket.socket]:
    """Yield the listening socket of a data folder, for this user only.

    If no socket can be created there, it is in the folder of this user's service records, under a
    name that is the same at every start.
    """
    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    with ExitStack() as stack:
        try:
            bound = stack.enter_context(listening_unix_socket(data_dir / NAME))
        except NoSocketThere:
            known_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
            elsewhere = known_folder() / f"{digest}.sock"
            bound = stack.enter_context(listening_unix_socket(elsewhere))
        yield bound


@contextmanager
def listening_unix_socket(path: Path) -> Iterator[socket.socket]:
    """Yield a socket that listens at a path, for this user only; the socket of a killed service is
    replaced.

    Raises:
        NoSocketThere: no socket can be created there.
        InvalidInput: another process listens there.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as bound:
        try:
            if _answers(path):
                raise InvalidInput("socket", str(path), "something listens there already")
            if path.is_socket():
                path.unlink()
            before = os.umask(0o177)
            try:
                bound.bind(str(path))
            finally:
                os.umask(before)
            bound.listen(BACKLOG)
        except OSError as error:
            reason = f"no socket can be made there: {error.strerror or error}"
            valid = "a path of at most 107 bytes, in a folder that this user may write"
            raise NoSocketThere("socket", str(path), reason, valid=valid) from error
        try:
            yield bound
        finally:
            path.unlink(missing_ok=True)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0
