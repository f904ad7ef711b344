"""The time of day by a clock that nobody sets: what was found when is compared by it."""

from __future__ import annotations

import time

_AHEAD_S = time.time() - time.monotonic()


def steady_time() -> float:
    """Return the epoch that was when this process began, and the seconds since."""
    return _AHEAD_S + time.monotonic()


def steady_time_of(epoch: float) -> float:
    """Return what `steady_time` was at an epoch by this machine's clock; now, if it is to come."""
    return steady_time() - max(0.0, time.time() - epoch)
