"""Being let in."""

from __future__ import annotations

from autotune.schemas.wire import Wire


class BrowserKey(Wire):
    """What lets one browser in, once."""

    key: str
    """To be opened as `/enter?key=…`, with `to=` for a page of the service."""
