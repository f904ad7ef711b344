"""Choose the port that the service listens on."""

from __future__ import annotations

import errno
import socket
from contextlib import suppress

from search_spaces.errors import InvalidInput

BACKLOG = 128
PORTS_TRIED = 20
LAST_PORT = 65535


class PortInUse(InvalidInput):
    """The port is already in use."""


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket, so that no other process takes the port before the service starts.

    Raises:
        InvalidInput: the port is in use or not allowed, or the host is not this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    # Without this, sockets of closed connections would block the port for a while.
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(BACKLOG)
    except OverflowError:
        bound.close()
        raise InvalidInput("port", port, "there is no such port", valid="0 to 65535") from None
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            reason = f"port {port} is in use; choose another with --port"
            raise PortInUse("port", port, reason) from error
        if error.errno == errno.EACCES:
            reason = f"port {port} may not be used without special rights"
            raise InvalidInput("port", port, reason, valid="1024 to 65535") from error
        reason = f"cannot be listened on: {error.strerror or error}"
        raise InvalidInput("host", host, reason) from error
    return bound


def next_free_socket(host: str, port: int) -> socket.socket:
    """Return a socket listening on the port, or on the first free one above it.

    Raises:
        InvalidInput: none of PORTS_TRIED is free, or the host is not this machine's.
    """
    for number in range(port, min(port + PORTS_TRIED, LAST_PORT) + 1):
        with suppress(PortInUse):
            return listening_socket(host, number)
    return listening_socket(host, port)


def usable_port(host: str, port: int) -> int:
    """Return the port that the service could listen on; for 0, one chosen by the system.

    Raises:
        InvalidInput: the port is in use or not allowed, or the host is not this machine's.
    """
    with listening_socket(host, port) as bound:
        number: int = bound.getsockname()[1]
    return number


def is_free(host: str, port: int) -> bool:
    try:
        usable_port(host, port)
    except InvalidInput:
        return False
    return True


def free_port(host: str, *, preferred: int) -> int:
    return preferred if is_free(host, preferred) else usable_port(host, 0)
