"""A look at the cluster before a campaign's first trial, while other campaigns go on."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from evaluators.slurm.commands import SlurmUnavailable
from search_spaces.errors import InvalidInput

AGAIN_S = 10.0
"""Before a cluster that did not answer is asked again."""

Look = Callable[[], Sequence[InvalidInput]]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What was found.

    Attributes:
        obstacle: what keeps every trial from running, in sentences for the user.
        delay: why it cannot be said yet.
    """

    obstacle: str = ""
    delay: str = ""

    @property
    def clear(self) -> bool:
        return not (self.obstacle or self.delay)


CLEAR = Finding()


class Preflight:
    """Looks until the cluster has answered.

    Args:
        look: may take as long as Slurm does, and raises SlurmUnavailable.
    """

    def __init__(self, look: Look, *, threads: Executor) -> None:
        self._look = look
        self._threads = threads
        self._future: Future[Sequence[InvalidInput]] | None = None
        self._finding: Finding | None = None
        self._next_look = 0.0

    def finding(self) -> Finding | None:
        """The newest; None before there is one."""
        if self._future is not None and self._future.done():
            self._finding = _finding(self._future)
            self._future, self._next_look = None, time.monotonic() + AGAIN_S
        if self._future is None and self._must_look():
            self._future = self._threads.submit(self._look)
        return self._finding

    def _must_look(self) -> bool:
        if self._finding is None:
            return True
        return bool(self._finding.delay) and time.monotonic() >= self._next_look


def _finding(looked: Future[Sequence[InvalidInput]]) -> Finding:
    try:
        found = looked.result()
    except SlurmUnavailable as error:
        return Finding(delay=f"Slurm does not answer ({error})")
    return Finding(obstacle="; ".join(str(problem) for problem in found))
