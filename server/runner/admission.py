"""Whether a campaign's trials may start: by its cluster, and by the queue for this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from evaluators.ray.connection import RayUnavailable
from evaluators.ray.preflight import NodesLacking
from evaluators.slurm.commands import SlurmUnavailable
from search_spaces.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class ClusterStatus:
    """The result of a check.

    Attributes:
        obstacle: why no trial can run, as sentences for the user.
        delay: why this is not known yet.
    """

    obstacle: str = ""
    delay: str = ""

    @classmethod
    def of(cls, obstacles: Sequence[InvalidInput]) -> ClusterStatus:
        """Return the status for these obstacles; missing Ray nodes are waited for."""
        if obstacles and all(isinstance(each, NodesLacking) for each in obstacles):
            lacking = obstacles[0]
            return cls(
                delay=f"waits for nodes: {lacking.reason}, and trials take up to {lacking.value}"
            )
        return cls(obstacle="; ".join(map(str, obstacles)))

    @property
    def clear(self) -> bool:
        return not (self.obstacle or self.delay)


class ClusterCheck:
    """Asks a cluster for obstacles in a thread, until it has answered.

    Args:
        obstacles: may block for as long as the cluster does; raises SlurmUnavailable,
            RayUnavailable.
        retry_s: pause before a retry.
    """

    def __init__(
        self,
        obstacles: Callable[[], Sequence[InvalidInput]],
        *,
        threads: Executor,
        retry_s: float,
    ) -> None:
        self._obstacles = obstacles
        self._threads = threads
        self._retry_s = retry_s
        self._answer: Future[Sequence[InvalidInput]] | None = None
        self._status: ClusterStatus | None = None
        self._next_check = 0.0

    def status(self) -> ClusterStatus | None:
        """Return the latest status; None before the first."""
        if self._answer is not None and self._answer.done():
            try:
                self._status = ClusterStatus.of(self._answer.result())
            except SlurmUnavailable as error:
                self._status = ClusterStatus(delay=f"Slurm does not answer ({error})")
            except RayUnavailable as error:
                self._status = ClusterStatus(delay=f"Ray does not answer ({error})")
            self._answer, self._next_check = None, time.monotonic() + self._retry_s
        due = self._status is None or (
            bool(self._status.delay) and time.monotonic() >= self._next_check
        )
        if self._answer is None and due:
            self._answer = self._threads.submit(self._obstacles)
        return self._status


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
