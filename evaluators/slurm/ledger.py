"""Nodes that failed under trials, in one file beside them: it outlives this process."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

LEDGER = "failed-nodes"


def note_failures(trials: Path, *, name: str, nodes: Iterable[str]) -> None:
    """These nodes failed under the attempt of this name; noted twice, it counts once.

    A ledger that cannot be written costs a retry, and no result: it is left as it is.
    """
    lines = "".join(f"{node} {name}\n" for node in nodes)
    with contextlib.suppress(OSError), (trials / LEDGER).open("a", encoding="utf-8") as file:
        file.write(lines)


def excluded(trials: Path, *, failures: int) -> tuple[str, ...]:
    """The nodes that failed under at least so many attempts, in order."""
    try:
        lines = (trials / LEDGER).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ()
    under = defaultdict(set)
    for line in lines:
        node, _, name = line.partition(" ")
        under[node].add(name)
    return tuple(sorted(node for node, names in under.items() if len(names) >= failures))
