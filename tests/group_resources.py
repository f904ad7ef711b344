"""What tests of one xdist group share: made when the first asks for it, ended after the last.

A fixture of the session would keep it to the end of all tests; daemons take time of a core even
while nobody asks them for anything.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, ClassVar, Generic, TypeVar

Resource = TypeVar("Resource")


class Shared(Generic[Resource]):
    """One resource of this process.

    Args:
        make: what it returns is entered, and left when the group ends.
    """

    known: ClassVar[list[Shared[Any]]] = []

    def __init__(self, make: Callable[[], AbstractContextManager[Resource]]) -> None:
        self._make = make
        self._made: list[Resource] = []
        self._ends = ExitStack()
        self.known.append(self)

    def get(self) -> Resource:
        if not self._made:
            self._made.append(self._ends.enter_context(self._make()))
        return self._made[0]

    def end(self) -> None:
        self._made.clear()
        self._ends.close()


def end_all() -> None:
    """End what there is; who asks again gets another."""
    for shared in Shared.known:
        shared.end()
