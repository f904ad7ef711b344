"""Nodes that failed during attempts, one "<node> <attempt>" a line in `<trials>/failed-nodes`."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

FAILED_NODES = "failed-nodes"


def note_failed_nodes(trials: Path, *, name: str, nodes: Iterable[str]) -> None:
    """Record that these nodes failed during the attempt of this name; a repeated record counts
    once.

    An unwritable file is ignored: it costs a retry, not a result.
    """
    lines = "".join(f"{node} {name}\n" for node in nodes)
    with contextlib.suppress(OSError), (trials / FAILED_NODES).open("a", encoding="utf-8") as file:
        file.write(lines)


def nodes_to_exclude(trials: Path, *, failures: int) -> tuple[str, ...]:
    """Return the nodes that failed in at least this many attempts, sorted."""
    try:
        lines = (trials / FAILED_NODES).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ()
    under = defaultdict(set)
    for line in lines:
        node, _, name = line.partition(" ")
        under[node].add(name)
    return tuple(sorted(node for node, names in under.items() if len(names) >= failures))
