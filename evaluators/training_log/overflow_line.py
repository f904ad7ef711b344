"""Steps that DeepSpeed skips because gradients overflowed, in the words of all its versions."""

from __future__ import annotations

import re
from collections import Counter

# Of one step the fused optimizer may say two of these, and before 0.3 every rank said it.
_OVERFLOW = re.compile(
    r"(OVERFLOW!|loss scale overflow!|(?<!No )Grad overflow on iteration|Gradient overflow\.)"
    r"(?: Rank ([0-9]{1,7}))?"
)
SIGNS = ("OVERFLOW!", "verflow")
MOST_WRITERS = 100_000


class Overflows:
    """Counts skipped steps between iteration lines."""

    def __init__(self) -> None:
        self._said: Counter[tuple[str, int | None]] = Counter()
        self._before = 0

    def read(self, text: str, *, rank: int | None) -> bool:
        """Take a report of a skipped step; False for any other line.

        Args:
            rank: that wrote it, where the line's prefix tells.
        """
        found = None
        for found in _OVERFLOW.finditer(text):
            key = (found[1], int(found[2]) if found[2] else rank)
            if key in self._said or len(self._said) < MOST_WRITERS:
                self._said[key] += 1
        return found is not None

    def taken(self) -> int:
        """Steps skipped since it was asked last."""
        steps = max(self._said.values(), default=0)
        self._before += steps
        self._said.clear()
        return steps

    def total(self) -> int:
        return self._before + max(self._said.values(), default=0)
