"""Finds the parallel layout with which a language model trains fastest on a cluster.

`from autotune import Client` talks to a running service; it is imported when first asked for, so
that the pure parts of this package stay cheap to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.client.client import Client as Client

__all__ = ["Client"]


def __getattr__(name: str) -> Any:
    if name != "Client":
        raise AttributeError(f"module 'autotune' has no attribute {name!r}")
    from autotune.client.client import Client

    return Client
