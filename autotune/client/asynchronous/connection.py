"""The connection to a service, as all that can be asked of it shares it."""

from __future__ import annotations

from typing import Self

from autotune.client.asynchronous.transport import AsyncTransport
from autotune.client.patience import Patience


class AsyncConnection:
    """A service that can be asked."""

    def __init__(self, base_url: str | None = None, *, patience: Patience | None = None) -> None:
        self._transport = AsyncTransport(base_url, patience or Patience())

    @property
    def base_url(self) -> str:
        return self._transport.base_url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()
