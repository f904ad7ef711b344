"""Ports of loopback that nobody uses."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

LOWEST, HIGHEST = 10_000, 32_000  # below those that the kernel gives to outgoing connections


def free_ports(count: int) -> tuple[int, ...]:
    """All are held until the last is found, so that none is given twice."""
    found: list[int] = []
    with ExitStack() as held:
        while len(found) < count:
            port = random.SystemRandom().randint(LOWEST, HIGHEST)
            probe = held.enter_context(socket.socket())
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
    return tuple(found)
