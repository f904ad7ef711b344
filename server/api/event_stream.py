"""An answer that goes on: Server-Sent Events, with little memory for each who reads them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

MEDIA_TYPE = "text/event-stream"
SENT: Mapping[str, str] = {
    "Content-Type": f"{MEDIA_TYPE}; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",  # what nginx keeps back arrives late
}


class EventStream(Response):
    """Sends messages as they come, until there are no more or the reader has gone.

    FastAPI's own has two tasks, four channels and their contexts for each reader: twice the memory.

    Args:
        messages: each as it is sent, with the empty line at its end.
        status_code: read by FastAPI for its description.
    """

    def __init__(self, messages: AsyncIterator[bytes], status_code: int = 200) -> None:
        self.status_code = status_code
        self.background = None
        self.init_headers(SENT)
        self._messages = messages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        try:
            async with asyncio.timeout(None) as reading:
                watching = asyncio.create_task(_gone(receive, reading))
                try:
                    await self._send(send)
                finally:
                    watching.cancel()
        except TimeoutError:
            if not reading.expired():  # but something else has been waited for too long
                raise

    async def _send(self, send: Send) -> None:
        head = {"type": "http.response.start", "status": self.status_code}
        await send(head | {"headers": self.raw_headers})
        async for message in self._messages:
            await send({"type": "http.response.body", "body": message, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive, reading: asyncio.Timeout) -> None:
    """End what is sent to a reader once that has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    reading.reschedule(asyncio.get_running_loop().time())
