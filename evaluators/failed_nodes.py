"""Nodes that failed, or whose hardware is faulty: which they are, and which are left out."""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from autotune.schemas.choices import TrialState
from evaluators.program import AttemptEnd, Program
from evaluators.training_log import Cause, CauseKind
from evaluators.trial import TrialRequest, log_end

FAILED_NODES = "failed-nodes"
_SIGNS = re.compile(r"ncorrectable |fallen off the bus| is lost|Xid \(PCI:|NET/IB|ECC")
_MOST_BYTES = 4 << 20


def hardware_fault(
    program: Program, request: TrialRequest, folder: Path, end: AttemptEnd
) -> Cause | None:
    """Return the fault of the hardware that ended the attempt in `folder`; None without one.

    A faulty GPU of one rank may leave the others waiting until the time limit.
    """
    failed = end.exit_code != 0 if end.status is None else end.status is TrialState.TIMEOUT
    # The whole log, which may be long, is only read if its end has the words.
    if not failed or not _SIGNS.search(log_end(folder, most_bytes=_MOST_BYTES)):
        return None
    cause = program.cause(request, folder)
    return cause if cause and cause.kind is CauseKind.HARDWARE else None


def place_of(cause: Cause, hosts: Sequence[str], *, ranks_per_node: int) -> int | None:
    """Return the index of the node that the log blames; None if it names none.

    Args:
        hosts: of the attempt, in the order of their ranks.
    """
    short = [host.partition(".")[0] for host in hosts]
    if (name := cause.host.partition(".")[0]) and short.count(name) == 1:
        return short.index(name)
    if cause.rank is not None and cause.rank < len(hosts) * ranks_per_node:
        return cause.rank // ranks_per_node
    return 0 if len(hosts) == 1 else None


def note_failed_nodes(trials: Path, *, name: str, nodes: Iterable[str]) -> None:
    """Record that these nodes failed during the attempt of this name; a repeated record counts
    once.

    An unwritable file is ignored: it costs a retry, not a result.
    """
    lines = "".join(f"{node} {name}\n" for node in nodes)
    with contextlib.suppress(OSError), (trials / FAILED_NODES).open("a", encoding="utf-8") as file:
        file.write(lines)


def nodes_to_exclude(trials: Path, *, failures: int, token: str = "") -> tuple[str, ...]:
    """Return the nodes that failed in at least this many attempts, sorted.

    Args:
        token: of a trial for which one failure in its own earlier attempts is enough.
    """
    try:
        lines = (trials / FAILED_NODES).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ()
    under = defaultdict(set)
    for line in lines:
        node, _, name = line.partition(" ")
        under[node].add(name)
    return tuple(
        sorted(
            node
            for node, names in under.items()
            if len(names) >= failures or (token and any(n.startswith(f"{token}.") for n in names))
        )
    )
