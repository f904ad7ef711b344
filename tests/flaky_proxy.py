"""A TCP proxy that breaks connections, as networks do."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

CHUNK = 65536


@dataclass
class FlakyProxy:
    """Forwards each connection, but treats the first ones as told.

    Attributes:
        cuts: for each of the first connections, after how many bytes of the answer it is cut;
            0 lets the request through and drops the whole answer.
        refusals: raw answers given to the first connections without asking the service.
        requests: the head of each request that came.
    """

    target: tuple[str, int]
    cuts: list[int] = field(default_factory=list)
    refusals: list[bytes] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def handle(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            head = client.recv(CHUNK)
            self.requests.append(head.decode(errors="replace"))
            if self.refusals:
                client.sendall(self.refusals.pop(0))
                return
            limit = self.cuts.pop(0) if self.cuts else None
            with socket.create_connection(self.target) as service:
                service.sendall(head)
                threading.Thread(target=_copy, args=(client, service), daemon=True).start()
                _copy(service, client, limit=limit)
            # Closing alone would not end the connection while the other thread reads from it.
            client.shutdown(socket.SHUT_RDWR)


def _copy(source: socket.socket, sink: socket.socket, *, limit: int | None = None) -> None:
    """Until the source ends, or until `limit` bytes were read."""
    passed = 0
    with contextlib.suppress(OSError):
        while chunk := source.recv(CHUNK):
            passed += len(chunk)
            if limit is not None and passed > limit:
                sink.sendall(chunk[: len(chunk) - (passed - limit)])
                return
            sink.sendall(chunk)
        sink.shutdown(socket.SHUT_WR)


@contextmanager
def flaky_proxy(url: str) -> Iterator[tuple[str, FlakyProxy]]:
    """Its address, and the proxy to tell how to behave."""
    parts = urlsplit(url)
    proxy = FlakyProxy(target=(parts.hostname or "", parts.port or 0))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, proxy), daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", proxy
        # Wakes the accepting thread, which a closed socket alone would leave asleep.
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, proxy: FlakyProxy) -> None:
    with contextlib.suppress(OSError):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=proxy.handle, args=(client,), daemon=True).start()
