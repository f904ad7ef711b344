"""The connection to a service, as all that can be asked of it shares it."""

from __future__ import annotations

from pathlib import Path
from typing import Self
from urllib.parse import urlencode

from autotune.client import calls
from autotune.client.asynchronous.transport import AsyncTransport
from autotune.client.location import locate
from autotune.client.patience import Patience
from autotune.schemas import WhoAmI


class AsyncConnection:
    """A service that can be asked."""

    def __init__(
        self,
        base_url: str | None = None,
        *,
        token_file: Path | None = None,
        patience: Patience | None = None,
    ) -> None:
        location = locate(base_url, token_file=token_file)
        self._transport = AsyncTransport(location, patience or Patience())

    @property
    def base_url(self) -> str:
        return self._transport.base_url

    async def browser_address(self, page: str = "/") -> str:
        """Return the address of a page that lets the browser in that opens it first, and no other.

        Args:
            page: its path: `/campaigns/3`.
        """
        key = (await self._transport.send(calls.access.browser_key())).key
        return f"{self.base_url}/enter?{urlencode({'key': key, 'to': page})}"

    async def whoami(self) -> WhoAmI:
        """Return who asks, as the service knows them, and what they may do."""
        return await self._transport.send(calls.access.whoami())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()
