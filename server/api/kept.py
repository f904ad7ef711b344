"""Answers that cost time, worked out once for all who ask."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

from server.store.recent import Recent

T = TypeVar("T")


class Kept(Generic[T]):
    """The last answers asked for, by what they are about.

    Whoever asks for one that is being worked out waits for the one who asked first.

    Args:
        most: answers that are kept. Of what changes there is one, of the version that was asked for
            last: nobody asks for an earlier one again, and it would take as much memory.
    """

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._answers: Recent[Hashable, tuple[Hashable, Future[T]]] = Recent(most)

    def of(self, key: Hashable, make: Callable[[], T], *, version: Hashable = None) -> T:
        """Return the answer of this key and version; one whose making fails is not kept."""
        with self._lock:
            future = self._known(key, version)
            mine = future is None
            future = future or Future()
            self._answers.keep({key: (version, future)})
        if mine:
            try:
                future.set_result(make())
            except BaseException as error:
                with self._lock:
                    if self._known(key, version) is future:
                        self._answers.drop(key)
                future.set_exception(error)
        return future.result()

    def ready(self, key: Hashable, *, version: Hashable = None) -> T | None:
        """Return the answer of this key and version where there is one already."""
        with self._lock:
            future = self._known(key, version)
        if future is None or not future.done() or future.exception() is not None:
            return None
        return future.result()

    def _known(self, key: Hashable, version: Hashable) -> Future[T] | None:
        kept, future = self._answers.get(key) or (None, None)
        return future if kept == version else None
