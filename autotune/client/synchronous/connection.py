# Generated from `asynchronous` by `make client`: change that and run it again.
"""The connection to a service, as all that can be asked of it shares it."""

from __future__ import annotations

from typing import Self

from autotune.client.patience import Patience
from autotune.client.synchronous.transport import Transport


class Connection:
    """A service that can be asked."""

    def __init__(self, base_url: str | None = None, *, patience: Patience | None = None) -> None:
        self._transport = Transport(base_url, patience or Patience())

    @property
    def base_url(self) -> str:
        return self._transport.base_url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._transport.close()
