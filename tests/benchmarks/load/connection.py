"""Clients of a service under load, as light as they can be."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from autotune.client.known_services import record_of

VIEWS = {
    "page": "/campaigns/{}",
    "recommendation": "/api/v1/campaigns/{}/recommendation",
    "chart": "/api/v1/campaigns/{}/figures/trajectory.vega.json",
    "trials": "/api/v1/campaigns/{}/trials",
    "campaign": "/api/v1/campaigns/{}",
}


class Connection:
    """One client's connection, kept open as a browser keeps it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._token = token

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[Connection]:
        address = urlsplit(url)
        record = record_of(url)
        assert record is not None, url
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            yield cls(reader, writer, record.token)
        finally:
            writer.close()

    async def ask(self, path: str, *, method: str = "GET") -> bytes:
        """Return the answer's body as it came, compressed; raises AssertionError for a refusal."""
        await self.send(path, method=method)
        headers = await self.head()
        return await self._reader.readexactly(int(headers.get("content-length", 0)))

    async def send(self, path: str, *, method: str = "GET") -> None:
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", "Accept-Encoding: gzip"]
        lines += [f"Authorization: Bearer {self._token}"]
        lines += ["Content-Length: 0"] if method == "POST" else []
        self._writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        await self._writer.drain()

    async def head(self) -> dict[str, str]:
        status, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        assert status.split()[1] == "200", status
        pairs = (line.partition(": ") for line in lines if line)
        return {name.lower(): value for name, _, value in pairs}

    async def line(self) -> bytes:
        """Return the next line of a stream."""
        return await self._reader.readline()


async def waited(connection: Connection, path: str) -> float:
    """Return the seconds until an answer has come."""
    began = time.monotonic()
    await connection.ask(path)
    return time.monotonic() - began


async def ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    """End tasks that go on for ever; raises what one of them ended of."""
    for task in tasks:
        task.cancel()
    for error in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(error, Exception):
            raise error
