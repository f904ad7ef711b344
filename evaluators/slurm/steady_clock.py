"""Time of day by a clock that nobody sets, for comparing observations."""

from __future__ import annotations

import time

_AHEAD_S = time.time() - time.monotonic()


def steady_time() -> float:
    """Return the epoch at this process's start plus the monotonic seconds since."""
    return _AHEAD_S + time.monotonic()


def steady_time_of(epoch: float) -> float:
    """Return `steady_time` at an epoch of this machine's clock; now, if that lies in the future."""
    return steady_time() - max(0.0, time.time() - epoch)
