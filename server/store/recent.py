"""What was asked for lately, of whatever costs time to read or to work out."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

IDLE_S = 300.0
"""A number alone bounds memory late: what nobody looks at any more would stay until as much else
has been asked for, for hours where that comes slowly."""


class Recent(Generic[K, V]):
    """The last values asked for, none of which nobody has asked for in `idle_s`.

    Whoever uses it from several threads has a lock of their own.
    """

    def __init__(
        self, most: int, *, idle_s: float = IDLE_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = most
        self._idle_s = idle_s
        self._clock = clock
        self._values: OrderedDict[K, tuple[V, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return a value that is kept; that it was asked for, `keep` says."""
        kept = self._values.get(key)
        return None if kept is None else kept[0]

    def keep(self, values: Mapping[K, V]) -> None:
        """Keep values that were asked for now, and drop those that this leaves no room for."""
        now = self._clock()
        for key, value in values.items():
            self._values[key] = value, now
            self._values.move_to_end(key)
        while self._values and self._is_old(now):
            self._values.popitem(last=False)

    def drop(self, key: K) -> None:
        """Keep a value no longer."""
        self._values.pop(key, None)

    def _is_old(self, now: float) -> bool:
        _, asked = next(iter(self._values.values()))
        return len(self._values) > self._most or now - asked > self._idle_s
