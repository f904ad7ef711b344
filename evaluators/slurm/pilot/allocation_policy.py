"""When an allocation is requested, and when it is released."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from autotune.schemas import TrialState
from evaluators.attempt.attempt_state import AttemptState
from evaluators.cluster.profile import Pilot
from evaluators.slurm.failed_nodes import nodes_to_exclude
from evaluators.slurm.pilot.allocation import AllocationRequest, RunningAllocation
from evaluators.slurm.pilot.pilot_trial import PilotContext, PilotTrial
from evaluators.slurm.pilot.step import OrphanedSteps
from evaluators.time_limit import longest_s
from evaluators.trial import TrialRequest

INTERVAL_S = 0.1
"""Between two looks at the allocation."""
START_MARGIN_S = 60.0
"""Between the begin of an allocation and the first trial: or each would be too late for one."""


class AllocationPolicy:
    """Holds one allocation while there is work, replaces it if it is unsuitable, and none when
    idle."""

    def __init__(
        self,
        context: PilotContext,
        orphans: OrphanedSteps,
        *,
        trials: Path,
        nodes: int | None,
    ) -> None:
        self._context = context
        self._allocation = context.allocation
        self._pilot = context.profile.pilot
        self._orphans = orphans
        self._trials = trials
        self._nodes = nodes or 0
        self._excluded: tuple[str, ...] = ()
        self._advanced_at = float("-inf")
        self._busy_at = time.monotonic()

    def usable(self, allocation: RunningAllocation) -> list[str]:
        """Return the nodes of the allocation that did not fail too often."""
        avoided = set(self._excluded)
        return [node for node in allocation.nodes if node not in avoided]

    def advance(self, trials: Sequence[PilotTrial]) -> None:
        """Update the allocation; call it several times a second."""
        now = time.monotonic()
        if now - self._advanced_at < INTERVAL_S:
            return
        self._advanced_at = now
        failures = self._context.profile.retries.node_failures
        self._excluded = nodes_to_exclude(self._trials, failures=failures)
        self._refuse(_waiting(trials))
        waiting = _waiting(trials)
        running = [
            trial for trial in trials if trial.holds_nodes or trial.state is AttemptState.NEW
        ]
        if waiting or running:
            self._busy_at = now
            self._context.tracker.watch()
        if no_allocation := self._allocation.advance(self._wanted(waiting)):
            for trial in waiting:
                trial.settle(no_allocation.status, no_allocation.error)
        left_s = max(
            (longest_s(trial.request.protocol.time_limit_s) for trial in running), default=0.0
        )
        self._allocation.keep(left_s + self._pilot.idle_release_s)
        if not running and self._is_useless(waiting, now):
            self._allocation.release()

    def leave(self, trials: Sequence[PilotTrial]) -> None:
        """Release the allocation if nothing waits for it or runs in it: this process ends."""
        if all(trial.state is AttemptState.ENDED for trial in trials) and not self._orphaned:
            self._allocation.leave()

    @property
    def _orphaned(self) -> bool:
        """Return whether a trial of an earlier process that has no owner yet runs in it."""
        allocation = self._allocation.running
        return allocation is not None and bool(self._orphans.places(allocation.job_id))

    def _wanted(self, waiting: Sequence[PilotTrial]) -> AllocationRequest | None:
        """Return the allocation that the waiting trials need; None if none waits."""
        if not waiting:
            return None
        widest = max(trial.width for trial in waiting)
        return AllocationRequest(
            nodes=self._pilot.nodes or max(self._nodes, widest),
            gpus_per_node=waiting[0].request.machine.gpus_per_node,
            exclude=self._excluded,
        )

    def _refuse(self, waiting: Sequence[PilotTrial]) -> None:
        """Refuse the trials that no allocation can ever hold."""
        allocation = self._allocation.running
        for trial in waiting:
            reason = ""
            if self._allocation.replaceable:
                reason = why_refused(trial.request, self._pilot)
            elif allocation:
                reason = why_unfit(
                    trial.request, allocation, self.usable(allocation), now=time.time()
                )
            if reason:
                trial.settle(TrialState.REFUSED, reason)

    def _is_useless(self, waiting: Sequence[PilotTrial], now: float) -> bool:
        """Return whether to release the allocation: idle too long, or too small for every waiting
        trial.

        Called when none of our trials runs in it.
        """
        if self._orphaned:
            return False
        if not waiting:
            return now - self._busy_at > self._pilot.idle_release_s
        allocation = self._allocation.running
        if allocation is None:
            return False
        usable, epoch = self.usable(allocation), time.time()
        return all(why_unfit(trial.request, allocation, usable, now=epoch) for trial in waiting)


def _waiting(trials: Sequence[PilotTrial]) -> list[PilotTrial]:
    return [trial for trial in trials if trial.state is AttemptState.PENDING]


def why_unfit(
    request: TrialRequest, allocation: RunningAllocation, usable: Sequence[str], *, now: float
) -> str:
    """Return why the trial cannot run in this allocation, now (epoch) or later; empty if it can."""
    width = request.strategy.num_nodes
    if width > len(usable):
        return f"it needs {width} nodes, and {len(usable)} of the allocation can be used"
    limit_s, ends_at = request.protocol.time_limit_s, allocation.ends_at
    if ends_at is not None and now + longest_s(limit_s) > ends_at:
        return f"its time limit of {limit_s:g} s reaches beyond the end of the allocation"
    return ""


def why_refused(request: TrialRequest, pilot: Pilot) -> str:
    """Return why the trial can run in no allocation with these settings; empty if it can."""
    width, limit_s = request.strategy.num_nodes, request.protocol.time_limit_s
    most_s = 3600 * pilot.time_limit_h
    if pilot.nodes is not None and width > pilot.nodes:
        return f"it needs {width} nodes, and the allocation of pilot mode has {pilot.nodes}"
    if START_MARGIN_S + longest_s(limit_s) > most_s:
        return (
            f"its time limit of {limit_s:g} s is too long for the allocation of pilot mode,"
            f" which lasts {most_s:g} s"
        )
    return ""
