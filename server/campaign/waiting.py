"""The stored reason of a campaign in its confirmation phase: why its search ended, and what it
waits for."""

from __future__ import annotations

WAITS = "waits for "
"""Beginning of each reason to wait."""


def while_confirming(reason: str, wait: str) -> str:
    """Return the reason of a confirming campaign: why its search ended and, unless `wait` is empty,
    what it `waits for` now, replacing any previous wait."""
    ended = "" if reason.startswith(WAITS) else reason.partition(f" It {WAITS}")[0]
    if not (ended and wait):
        return ended or wait
    return f"{ended.rstrip('.')}. It {wait}"
