"""The service's cache of values that take time to compute, bounded and shared by threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from cachetools import TTLCache

T = TypeVar("T")

IDLE_S = 300.0
"""A value that is not requested for so long is dropped, so that memory follows the load."""
SIZE = 6000
"""Of all values, in units of about 10 kB."""
MEGABYTES = 200
"""Size of a value that takes megabytes: the trials of a campaign or machine, a fitted model."""


@dataclass(frozen=True)
class _Entry:
    version: Hashable
    future: Future[Any]
    size: int


class Cache:
    """A cache of the most recently requested values.

    A key names a kind of value and its campaign or request. It holds one value, computed for the
    latest version (the state of the campaign's rows).
    """

    def __init__(
        self,
        size: int = SIZE,
        *,
        idle_s: float = IDLE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lock = threading.Lock()
        self._entries: TTLCache[Hashable, _Entry] = TTLCache(
            size, idle_s, timer=clock, getsizeof=lambda entry: entry.size
        )

    def __len__(self) -> int:
        return len(self._entries)

    def of(
        self, key: Hashable, make: Callable[[], T], *, version: Hashable = None, size: int = 1
    ) -> T:
        """Return the value of a key and version; `make` computes it if it is not cached.

        Threads that request a value while it is computed wait for it. What `make` raises is raised
        to all of them and not cached.
        """
        with self._lock:
            entry = self._requested(key, version)
            mine = entry is None
            entry = entry or _Entry(version, Future(), size)
            if mine:
                self._entries[key] = entry
        if mine:
            try:
                entry.future.set_result(make())
            except BaseException as error:
                with self._lock:
                    if self._entries.get(key) is entry:
                        del self._entries[key]
                entry.future.set_exception(error)
        found: T = entry.future.result()
        return found

    def put(self, key: Hashable, value: object, *, version: Hashable = None) -> None:
        """Cache a value that was computed elsewhere."""
        future: Future[Any] = Future()
        future.set_result(value)
        with self._lock:
            self._entries[key] = _Entry(version, future, 1)

    def ready(self, key: Hashable, *, version: Hashable = None) -> Any:
        with self._lock:
            return _done(self._requested(key, version))

    def latest(self, key: Hashable) -> Any:
        with self._lock:
            return _done(self._entries.get(key))

    def _requested(self, key: Hashable, version: Hashable) -> _Entry | None:
        entry = self._entries.get(key)
        if entry is None or entry.version != version:
            return None
        self._entries[key] = entry  # its time starts again
        return entry


def _done(entry: _Entry | None) -> Any:
    if entry is None or not entry.future.done() or entry.future.exception() is not None:
        return None
    return entry.future.result()
