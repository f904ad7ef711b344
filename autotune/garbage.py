"""When the interpreter looks for garbage: seldom as a program starts, and not among what stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

USUAL = gc.get_threshold()
AT_THE_START = 100_000
"""New objects before it looks: what a command makes as it starts is less, or there to stay."""


def look_seldom() -> None:
    """Look after AT_THE_START new objects only, until `look_as_usual`."""
    gc.set_threshold(AT_THE_START)


def look_as_usual() -> None:
    gc.set_threshold(*USUAL)


@contextmanager
def staying() -> Iterator[None]:
    """Set aside what there is at the end, as imported modules: it is not looked through any more.

    Looking for garbage takes a third of a large import, half of it as the process ends, and finds
    none. What is garbage already stays with the rest until then.
    """
    looked = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if looked:
            gc.enable()
