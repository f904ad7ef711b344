"""When an allocation is asked for, and when it is given back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from autotune.schemas import TrialState
from evaluators.cluster.profile import Pilot
from evaluators.slurm.attempt_files import nodes_to_exclude
from evaluators.slurm.batch_script import KILL_AFTER_S
from evaluators.slurm.pilot.allocation import Need, RunningAllocation
from evaluators.slurm.pilot.pilot_trial import Endings, Phase, PilotContext, PilotTrial
from evaluators.slurm.pilot.step import OrphanedSteps
from evaluators.trial import TrialRequest

INTERVAL_S = 0.1


class AllocationPolicy:
    """There is one while there is work, another where it does not do, and none when idle."""

    def __init__(
        self,
        context: PilotContext,
        endings: Endings,
        orphans: OrphanedSteps,
        *,
        trials: Path,
        nodes: int | None,
    ) -> None:
        self._context = context
        self._allocation = context.allocation
        self._pilot = context.profile.pilot
        self._endings = endings
        self._orphans = orphans
        self._trials = trials
        self._nodes = nodes or 0
        self._excluded: tuple[str, ...] = ()
        self._advanced_at = float("-inf")
        self._busy_at = time.monotonic()

    def usable(self, room: RunningAllocation) -> list[str]:
        """The nodes of the allocation that did not fail too often."""
        avoided = set(self._excluded)
        return [node for node in room.nodes if node not in avoided]

    def advance(self, trials: Sequence[PilotTrial]) -> None:
        """See to the allocation; several times a second is enough."""
        now = time.monotonic()
        if now - self._advanced_at < INTERVAL_S:
            return
        self._advanced_at = now
        failures = self._context.profile.retries.node_failures
        self._excluded = nodes_to_exclude(self._trials, failures=failures)
        self._refuse(_waiting(trials))
        waiting = _waiting(trials)
        running = [trial for trial in trials if trial.holds_nodes or trial.phase is Phase.NEW]
        if waiting or running:
            self._busy_at = now
            self._context.tracker.watch()
        self._ask(waiting)
        left_s = max((longest_s(trial.request) for trial in running), default=0.0)
        self._allocation.keep(time.time() + left_s + self._pilot.idle_release_s)
        if not running and self._is_to_go(waiting, now):
            self._allocation.release()

    def _ask(self, waiting: Sequence[PilotTrial]) -> None:
        no_room = self._allocation.advance(self._need(waiting))
        for trial in waiting if no_room else ():
            assert no_room
            self._endings.settle(trial, no_room.status, no_room.error)

    def _need(self, waiting: Sequence[PilotTrial]) -> Need | None:
        if not waiting:
            return None
        widest = max(trial.width for trial in waiting)
        return Need(
            nodes=self._pilot.nodes or max(self._nodes, widest),
            gpus_per_node=waiting[0].request.machine.gpus_per_node,
            exclude=self._excluded,
        )

    def _refuse(self, waiting: Sequence[PilotTrial]) -> None:
        """Those that no allocation can ever hold."""
        room = self._allocation.room
        for trial in waiting:
            reason = ""
            if self._allocation.held:
                reason = why_refused(trial.request, self._pilot)
            elif room:
                reason = why_unfit(trial.request, room, self.usable(room), now=time.time())
            if reason:
                self._endings.settle(trial, TrialState.REFUSED, reason)

    def _is_to_go(self, waiting: Sequence[PilotTrial], now: float) -> bool:
        """Nothing of ours runs in it: has nobody needed it, or does it not do for any that wait?"""
        room = self._allocation.room
        if room and self._orphans.places(room.job_id):
            return False
        if not waiting:
            return now - self._busy_at > self._pilot.idle_release_s
        if room is None:
            return False
        usable, epoch = self.usable(room), time.time()
        return all(why_unfit(trial.request, room, usable, now=epoch) for trial in waiting)


def _waiting(trials: Sequence[PilotTrial]) -> list[PilotTrial]:
    return [trial for trial in trials if trial.phase is Phase.WAITING]


END_MARGIN_S = 10.0
"""Between the latest end of a trial and the end of the allocation."""
START_MARGIN_S = 60.0
"""Between the begin of an allocation and the first trial: or each would be too late for one."""


def longest_s(request: TrialRequest) -> float:
    """How long a trial can hold its nodes."""
    return request.protocol.time_limit_s + KILL_AFTER_S + END_MARGIN_S


def why_unfit(
    request: TrialRequest, room: RunningAllocation, usable: Sequence[str], *, now: float
) -> str:
    """Why it cannot run in this allocation, now (epoch) or later; empty where it can."""
    width = request.strategy.num_nodes
    if width > len(usable):
        return f"it needs {width} nodes, and {len(usable)} of the allocation can be used"
    if room.ends_at is not None and now + longest_s(request) > room.ends_at:
        limit_s = request.protocol.time_limit_s
        return f"its time limit of {limit_s:g} s reaches beyond the end of the allocation"
    return ""


def why_refused(request: TrialRequest, pilot: Pilot) -> str:
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
