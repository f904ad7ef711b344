"""Whether a trial can run in an allocation at all. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from evaluators.cluster.profile import Pilot
from evaluators.slurm.pilot.allocation import Room
from evaluators.slurm.script import KILL_AFTER_S
from evaluators.trial import TrialRequest

END_MARGIN_S = 10.0
"""Between the latest end of a trial and the end of the allocation."""
START_MARGIN_S = 60.0
"""Between the begin of an allocation and the first trial: or each would be too late for one."""


def longest_s(request: TrialRequest) -> float:
    """How long a trial can hold its nodes."""
    return request.protocol.time_limit_s + KILL_AFTER_S + END_MARGIN_S


def unfit(request: TrialRequest, room: Room, usable: Sequence[str], *, now: float) -> str:
    """Why it cannot run in this allocation, now (epoch) or later; empty where it can."""
    width = request.strategy.num_nodes
    if width > len(usable):
        return f"it needs {width} nodes, and {len(usable)} of the allocation can be used"
    if room.ends_at is not None and now + longest_s(request) > room.ends_at:
        limit_s = request.protocol.time_limit_s
        return f"its time limit of {limit_s:g} s reaches beyond the end of the allocation"
    return ""


def too_much(request: TrialRequest, pilot: Pilot) -> str:
    """Why it can run in no allocation of these settings; empty where it can."""
    width, limit_s = request.strategy.num_nodes, request.protocol.time_limit_s
    most_s = 3600 * pilot.time_limit_h
    if pilot.nodes is not None and width > pilot.nodes:
        return f"it needs {width} nodes, and the allocation of pilot mode has {pilot.nodes}"
    if START_MARGIN_S + longest_s(request) > most_s:
        return (
            f"its time limit of {limit_s:g} s is too long for the allocation of pilot mode,"
            f" which lasts {most_s:g} s"
        )
    return ""
