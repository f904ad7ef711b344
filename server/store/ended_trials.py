"""Trials that have ended, read from their rows once in a process: nothing changes them any more."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from autotune.schemas import Trial

MOST_TRIALS = 10_000
"""Ten kilobytes each at most."""

EndedKey = tuple[str, datetime]
"""A trial's token, which no other has, and when it ended: a transaction that wrote an end and was
rolled back leaves another one."""


class EndedTrials:
    """The last trials asked for; any thread may ask."""

    def __init__(self, most: int = MOST_TRIALS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._trials: OrderedDict[EndedKey, Trial] = OrderedDict()

    def of(
        self, keys: Iterable[EndedKey], read: Callable[[list[EndedKey]], Mapping[EndedKey, Trial]]
    ) -> dict[EndedKey, Trial]:
        """Return the trials of these keys.

        Args:
            read: returns those of them that are not known here.
        """
        wanted = list(keys)
        with self._lock:
            found = {key: self._trials[key] for key in wanted if key in self._trials}
        missing = [key for key in wanted if key not in found]
        if missing:
            found |= read(missing)
        with self._lock:
            for key in wanted:
                if key in found:
                    self._trials[key] = found[key]
                    self._trials.move_to_end(key)
            while len(self._trials) > self._most:
                self._trials.popitem(last=False)
        return found
