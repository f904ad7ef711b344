"""Trials that have ended, read from their rows once in a process: nothing changes them any more."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from autotune.schemas import Trial
from server.store.recent import Recent

MOST_TRIALS = 10_000
"""Five kilobytes each."""

EndedKey = tuple[str, datetime]
"""A trial's token, which no other has, and when it ended: a transaction that wrote an end and was
rolled back leaves another one."""


class EndedTrials:
    """The last trials asked for; any thread may ask."""

    def __init__(self, most: int = MOST_TRIALS) -> None:
        self._lock = threading.Lock()
        self._trials: Recent[EndedKey, Trial] = Recent(most)

    def of(
        self, keys: Iterable[EndedKey], read: Callable[[list[EndedKey]], Mapping[EndedKey, Trial]]
    ) -> dict[EndedKey, Trial]:
        """Return the trials of these keys.

        Args:
            read: returns those of them that are not known here.
        """
        wanted = list(keys)
        with self._lock:
            known = {key: self._trials.get(key) for key in wanted}
        found = {key: trial for key, trial in known.items() if trial is not None}
        missing = [key for key in wanted if key not in found]
        if missing:
            found |= read(missing)
        with self._lock:
            self._trials.keep(found)
        return found
