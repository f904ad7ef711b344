"""Requests about who may use the service."""

from __future__ import annotations

from autotune.client.calls.call import Call, get, reader
from autotune.schemas import BrowserKey, WhoAmI


def browser_key() -> Call[BrowserKey]:
    return Call(method="POST", path="/browser-keys", read=reader(BrowserKey))


def whoami() -> Call[WhoAmI]:
    return get("/whoami", WhoAmI)
