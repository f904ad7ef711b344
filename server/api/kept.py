"""Answers that cost time, worked out once for all who ask."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Kept(Generic[T]):
    """The last answers asked for, by what they are about.

    Whoever asks for one that is being worked out waits for the one who asked first.

    Args:
        most: answers that are kept. Of what changes there is one, of the version that was asked for
            last: nobody asks for an earlier one again, and it would take as much memory.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, tuple[Hashable, Future[T]]] = OrderedDict()

    def of(self, key: Hashable, make: Callable[[], T], *, version: Hashable = None) -> T:
        """Return the answer of this key and version; one whose making fails is not kept."""
        with self._lock:
            future = self._known(key, version)
            mine = future is None
            if future is None:
                future = Future()
                self._answers[key] = version, future
            self._answers.move_to_end(key)
            while len(self._answers) > self._most:
                self._answers.popitem(last=False)
        if mine:
            try:
                future.set_result(make())
            except BaseException as error:
                with self._lock:
                    if self._known(key, version) is future:
                        del self._answers[key]
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
        kept, future = self._answers.get(key, (None, None))
        return future if kept == version else None
