"""The queue of campaigns for the service's own machine."""

from __future__ import annotations


class MachineQueue:
    """Campaigns on the service's own machine: one at a time, first come, first served.

    After its turn a campaign queues behind the others.
    """

    def __init__(self) -> None:
        self._user: int | None = None
        self._waiting: list[int] = []

    def enter(self, campaign_id: int) -> bool:
        """Return whether this campaign may use the machine now; otherwise enqueue it."""
        if self._user == campaign_id:
            return True
        if campaign_id not in self._waiting:
            self._waiting.append(campaign_id)
        if self._user is None and self._waiting[0] == campaign_id:
            self._user = self._waiting.pop(0)
        return self._user == campaign_id

    def leave(self, campaign_id: int) -> None:
        """Release the machine, or leave the queue."""
        if self._user == campaign_id:
            self._user = None
        if campaign_id in self._waiting:
            self._waiting.remove(campaign_id)
