"""Whose turn it is on this machine, which runs the trials of one campaign at a time."""

from __future__ import annotations


class Turns:
    """First come, first served: a campaign that has had its turn queues up behind the others."""

    def __init__(self) -> None:
        self._holder: int | None = None
        self._waiting: list[int] = []

    def ask(self, campaign_id: int) -> bool:
        """Whether this campaign may use the machine now; otherwise it is in the queue."""
        if self._holder == campaign_id:
            return True
        if campaign_id not in self._waiting:
            self._waiting.append(campaign_id)
        if self._holder is None and self._waiting[0] == campaign_id:
            self._holder = self._waiting.pop(0)
        return self._holder == campaign_id

    def leave(self, campaign_id: int) -> None:
        """It runs nothing and asks for nothing."""
        if self._holder == campaign_id:
            self._holder = None
        if campaign_id in self._waiting:
            self._waiting.remove(campaign_id)
