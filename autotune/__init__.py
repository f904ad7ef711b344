"""Finds the parallel layout with which a language model trains fastest on a cluster.

`from autotune import Client` (or `AsyncClient`) talks to a running service; both are imported when
first asked for, so that the pure parts of this package stay cheap to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.client import AsyncClient as AsyncClient
    from autotune.client import Client as Client

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'autotune' has no attribute {name!r}")
    import autotune.client

    return getattr(autotune.client, name)
