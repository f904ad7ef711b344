"""One connection, closed where its other end takes too long: to ask, or to read the answer."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

BETWEEN_REQUESTS = frozenset({h11.DONE, h11.MUST_CLOSE, h11.CLOSED, h11.ERROR})
"""States of a client whose request has been read to its end."""


class BoundedConnection(H11Protocol):
    """HTTP whose clients have `limit_s` for a request, from the connection or from its first byte
    on, and as long to take what has been sent to them."""

    def __init__(self, *arguments: Any, limit_s: float, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limit_s = limit_s
        self._asking: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._asking = self._later()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state in BETWEEN_REQUESTS:
            _cancel(self._asking)
            self._asking = None
        elif self._asking is None:
            self._asking = self._later()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reading = self._later()

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._reading)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        _cancel(self._asking)
        _cancel(self._reading)

    def _later(self) -> asyncio.TimerHandle:
        # What is unsent is dropped: the other end does not take it.
        return self.loop.call_later(self._limit_s, self.transport.abort)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
