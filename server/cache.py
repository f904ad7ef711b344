"""A bounded cache of values that take time to compute, shared by threads."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")

IDLE_S = 300.0
"""A value that is not requested for so long is dropped, so that memory follows the load."""


class Cache(Generic[T]):
    """The most recently requested values. A key has one value, that of its last version.

    Args:
        most: number of values.
        idle_s: a value that is not requested for so long is dropped.
    """

    def __init__(
        self, most: int, *, idle_s: float = IDLE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = most
        self._idle_s = idle_s
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, tuple[Hashable, Future[T], float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def of(self, key: Hashable, make: Callable[[], T], *, version: Hashable = None) -> T:
        """Return the value of a key and version; `make` computes it if it is not cached.

        Threads that request a value while it is computed wait for it. What `make` raises is raised
        to all of them and not cached.
        """
        with self._lock:
            future = self._known(key, version)
            mine = future is None
            future = future or Future()
            self._put(key, version, future)
        if mine:
            try:
                future.set_result(make())
            except BaseException as error:
                with self._lock:
                    if self._known(key, version) is future:
                        del self._entries[key]
                future.set_exception(error)
        return future.result()

    def put(self, key: Hashable, value: T, *, version: Hashable = None) -> None:
        """Cache a value that was computed elsewhere."""
        future: Future[T] = Future()
        future.set_result(value)
        with self._lock:
            self._put(key, version, future)

    def ready(self, key: Hashable, *, version: Hashable = None) -> T | None:
        """Return the value of a key and version if it is cached."""
        with self._lock:
            future = self._known(key, version)
            if future is not None:
                self._put(key, version, future)
        return _done(future)

    def latest(self, key: Hashable) -> T | None:
        """Return the cached value of a key, of whichever version."""
        with self._lock:
            entry = self._entries.get(key)
        return None if entry is None else _done(entry[1])

    def _known(self, key: Hashable, version: Hashable) -> Future[T] | None:
        entry = self._entries.get(key)
        return entry[1] if entry is not None and entry[0] == version else None

    def _put(self, key: Hashable, version: Hashable, future: Future[T]) -> None:
        now = self._clock()
        self._entries[key] = version, future, now
        self._entries.move_to_end(key)
        while len(self._entries) > self._most or self._oldest() < now - self._idle_s:
            self._entries.popitem(last=False)

    def _oldest(self) -> float:
        return next(iter(self._entries.values()))[2]


def _done(future: Future[T] | None) -> T | None:
    if future is None or not future.done() or future.exception() is not None:
        return None
    return future.result()
