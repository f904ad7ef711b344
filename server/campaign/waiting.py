"""What a campaign that is confirming says: why its search ended, and for what it waits."""

from __future__ import annotations

WAITS = "waits for "
"""How each reason to wait begins."""


def while_confirming(reason: str, wait: str) -> str:
    """Return the reason of a campaign that is confirming: why its search ended and, unless `wait`
    is empty, for what it `waits for` now. What it waited for before is left out."""
    ended = "" if reason.startswith(WAITS) else reason.partition(f" It {WAITS}")[0]
    if not (ended and wait):
        return ended or wait
    return f"{ended.rstrip('.')}. It {wait}"
