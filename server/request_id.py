"""The id of the request that is being answered: in each line of the log, and in its answer."""

from __future__ import annotations

import re
import secrets
from contextvars import ContextVar

HEADER = "X-Request-ID"
WELL_FORMED = re.compile(r"[A-Za-z0-9._-]{1,64}")
_current: ContextVar[str] = ContextVar("request_id", default="")


def begin(proposed: str) -> str:
    """Return the id of a request that begins: what its client proposes where that is one."""
    given = proposed if WELL_FORMED.fullmatch(proposed) else secrets.token_hex(8)
    _current.set(given)
    return given


def current() -> str:
    """Return the id of the request that is being answered; empty outside of one."""
    return _current.get()
