"""Ports of loopback that nobody uses."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

LOWEST, HIGHEST = 10_000, 32_000  # below those that the kernel gives to outgoing connections


def free_ports(count: int) -> tuple[int, ...]:
    """All are held until the last is found, so that none is given twice."""
    ports: list[int] = []
    with ExitStack() as sockets:
        while len(ports) < count:
            port = random.SystemRandom().randint(LOWEST, HIGHEST)
            probe = sockets.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
    return tuple(ports)
