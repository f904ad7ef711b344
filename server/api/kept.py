"""Answers that cost time, worked out once for all who ask."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Kept(Generic[T]):
    """The last answers asked for, by what they follow from.

    Whoever asks for one that is being worked out waits for the one who asked first.

    Args:
        most: answers that are kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, Future[T]] = OrderedDict()

    def of(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the answer of this key; one whose making fails is not kept."""
        with self._lock:
            future = self._answers.get(key)
            mine = future is None
            if future is None:
                future = self._answers[key] = Future()
            self._answers.move_to_end(key)
            while len(self._answers) > self._most:
                self._answers.popitem(last=False)
        if mine:
            try:
                future.set_result(make())
            except BaseException as error:
                with self._lock:
                    self._answers.pop(key, None)
                future.set_exception(error)
        return future.result()

    def ready(self, key: Hashable) -> T | None:
        """Return the answer of this key where there is one already."""
        with self._lock:
            future = self._answers.get(key)
        if future is None or not future.done() or future.exception() is not None:
            return None
        return future.result()
