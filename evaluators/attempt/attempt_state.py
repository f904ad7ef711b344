"""States of an attempt and their transitions: the one state machine. Pure.

A trial that is a job, a trial of pilot mode, the allocation of pilot mode and a trial on Ray all
have these states, and change them only by `transition`; docs/slurm.md draws them.

A trial itself is `pending` (`TrialState`) until its last attempt has ENDED. After RUNNING it may
then be `ok`, `oom`, `timeout`, `crashed` or `cancelled`. If the cluster or a node is to blame, the
attempt is ABANDONED and another one follows; when these are used up, the trial is `node_fail`,
`preempted` or `lost`. One that never ran may be `refused`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class AttemptState(StrEnum):
    """State of an attempt."""

    NEW = "new"
    """Nothing was submitted yet, or its folder has not been read."""
    SUBMITTING = "submitting"
    """It is in our own queue, being handed over, or does not show up on the cluster yet."""
    PENDING = "pending"
    """It waits for nodes: in the cluster's queue, in a suspended job, or for an allocation's."""
    RUNNING = "running"
    """It has nodes."""
    COMPLETING = "completing"
    """Its job or its processes have gone, and it is not yet known why; its nodes may be taken."""
    ENDED = "ended"
    """It is known how it ended; what it left is being read, or has been."""
    ABANDONED = "abandoned"
    """It ended through no fault of the trial: another attempt may follow."""


_S = AttemptState

TRANSITIONS: Mapping[AttemptState, frozenset[AttemptState]] = {
    # What an earlier process began is found in whatever state it is.
    _S.NEW: frozenset({_S.SUBMITTING, _S.PENDING, _S.RUNNING, _S.COMPLETING, _S.ABANDONED}),
    _S.SUBMITTING: frozenset({_S.PENDING, _S.RUNNING, _S.COMPLETING, _S.ENDED, _S.ABANDONED}),
    # Backwards: a controller that was killed has forgotten what it had not written down, and runs
    # again what had ended; a job is suspended, or put back before its script began.
    _S.PENDING: frozenset({_S.SUBMITTING, _S.RUNNING, _S.COMPLETING, _S.ENDED, _S.ABANDONED}),
    _S.RUNNING: frozenset({_S.SUBMITTING, _S.PENDING, _S.COMPLETING, _S.ENDED, _S.ABANDONED}),
    _S.COMPLETING: frozenset({_S.SUBMITTING, _S.PENDING, _S.RUNNING, _S.ENDED, _S.ABANDONED}),
    _S.ENDED: frozenset(),
    _S.ABANDONED: frozenset(),
}
"""What each state may become next. What is decided stays so."""

WAITING = frozenset({_S.NEW, _S.SUBMITTING, _S.PENDING})
"""A trial waits in these states (`TrialProgress.phase`), and runs in the others."""
HOLDING_NODES = frozenset({_S.RUNNING, _S.COMPLETING})
"""The nodes of an attempt are not free in these states."""


def transition(state: AttemptState, to: AttemptState) -> AttemptState:
    """Return `to`, which may be the same state.

    Raises:
        ValueError: `state` may not become it.
    """
    if to is not state and to not in TRANSITIONS[state]:
        raise ValueError(f"an attempt that is {state} cannot become {to}")
    return to
