"""Sign-in."""

from __future__ import annotations

from autotune.schemas.wire import Wire


class BrowserKey(Wire):
    """A one-time key that signs in one browser."""

    key: str
    """Open it as `/enter?key=…`, with `to=` for a page of the service."""
