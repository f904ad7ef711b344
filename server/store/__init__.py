"""Campaigns, trials and events in SQLite or PostgreSQL."""

from server.store.errors import (
    Conflict,
    DatabaseReplaced,
    InUse,
    LeaseLost,
    NotFound,
    StoreError,
    UnknownSchema,
)
from server.store.store import Store

__all__ = [
    "Conflict",
    "DatabaseReplaced",
    "InUse",
    "LeaseLost",
    "NotFound",
    "Store",
    "StoreError",
    "UnknownSchema",
]
