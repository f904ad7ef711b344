"""How long a test waits for what has to happen before it fails and says what did not."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 480.0
"""Far longer than anything takes on a busy machine, and shorter than a test may last (the
`timeout` of pyproject.toml), so that the failure names what was waited for."""

LONGEST_PAUSE_S = 0.1


def until(holds: Callable[[], Any], what: str = "it holds") -> Any:
    """Return what `holds` returns, once that is true; fail naming `what` after `PATIENCE_S`.

    What takes long is asked for less often, for each look takes time of what it waits for.
    """
    ends, pause_s = time.monotonic() + PATIENCE_S, 0.01
    while not (found := holds()):
        assert time.monotonic() < ends, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, LONGEST_PAUSE_S)
    return found
