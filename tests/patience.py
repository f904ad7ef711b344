"""How long a test waits for what has to happen before it fails and says what did not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 480.0
"""Far longer than anything takes on a busy machine, and shorter than a test may last (the
`timeout` of pyproject.toml), so that the failure names what was waited for."""


def until(holds: Callable[[], Any], what: str = "it holds") -> Any:
    """Return what `holds` returns, once that is true; fail naming `what` after `PATIENCE_S`."""
    ends = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < ends, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(0.02)
    return found
