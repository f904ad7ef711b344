"""What each group has used of the allocation, so that none has more than the others. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from evaluators.slurm.pilot.packing import Share


class Shares:
    """Node-seconds by group.

    A group that comes back, or comes late, is owed nothing for the time when it had no work: it
    starts from what the least served of the working groups has.
    """

    def __init__(self) -> None:
        self._used: dict[str, float] = {}
        self._working: set[str] = set()

    def at_work(self, groups: Iterable[str]) -> None:
        """These have trials that wait or run; the others have none."""
        now = set(groups)
        least = min((self._used[group] for group in now & self._working), default=0.0)
        for group in now - self._working:
            self._used[group] = max(self._used.get(group, 0.0), least)
        self._working = now

    def charge(self, group: str, node_seconds: float) -> None:
        self._used[group] = self._used.get(group, 0.0) + node_seconds

    def of(self, held: Mapping[str, int]) -> dict[str, Share]:
        """By group, where `held` says how many nodes each has now."""
        nodes = Counter(held)
        groups = nodes.keys() | self._used.keys()
        return {
            group: Share(nodes=nodes[group], node_seconds=self._used.get(group, 0.0))
            for group in groups
        }
