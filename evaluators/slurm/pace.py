"""When Slurm may be asked next: the site's interval, longer while it is slow or silent. Pure."""

from __future__ import annotations

from dataclasses import dataclass

SHORTEST_S = 0.5
"""Between two calls that ask for something, whatever the settings say."""
SLOWNESS = 5
"""A call that took long is followed by a pause so many times as long …"""
LONGEST_PAUSE_S = 60.0
"""… but no longer than this, unless the interval itself is."""
HURRIED = 5
"""Where somebody waits for an answer the interval is so many times shorter."""


@dataclass(kw_only=True)
class Pace:
    """Times are seconds of a clock that never jumps.

    Attributes:
        interval_s: between two status calls of a Slurm that answers at once.
    """

    interval_s: float
    _asked_at: float = float("-inf")
    _pause_s: float = 0.0
    _accounting_pause_s: float = 0.0

    def asked(self, *, now: float) -> None:
        """A call that asks for something begins."""
        self._asked_at = now

    def answered(self, *, now: float) -> None:
        """The status call that began last was answered."""
        took = now - self._asked_at
        self._pause_s = max(self.interval_s, min(SLOWNESS * took, LONGEST_PAUSE_S)) + took
        self._accounting_pause_s = 0.0

    def unanswered(self, *, now: float) -> None:
        """A call was not; the next one follows after as long as it took."""
        took = now - self._asked_at
        self._pause_s = max(self.interval_s, min(took, LONGEST_PAUSE_S)) + took

    def accounting_unanswered(self, *, now: float) -> None:
        """Accounting may be down while Slurm is not."""
        took = now - self._asked_at
        self._accounting_pause_s = max(SLOWNESS * self.interval_s, took) + took

    def status_due(self, *, hurry: bool) -> float:
        pause_s = self._pause_s / HURRIED if hurry else self._pause_s
        return self._asked_at + max(pause_s, SHORTEST_S)

    def accounting_due(self) -> float:
        return self._asked_at + max(self._accounting_pause_s, SHORTEST_S)
