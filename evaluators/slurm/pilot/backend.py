"""Trials as steps of one allocation.

The backend's thread detects ended trials, starts the next ones on free nodes, and requests and
releases the allocation.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from autotune.files import is_file_system_failure
from autotune.schemas.choices import TrialState
from evaluators.attempt import (
    AttemptState,
    FollowingBackend,
    never_prepared,
    write_abandoned,
)
from evaluators.cluster.profile import ClusterProfile, Pilot
from evaluators.failed_nodes import nodes_to_exclude
from evaluators.program import Program
from evaluators.slurm.attempt_files import read_attempt_files
from evaluators.slurm.job_tracker import JobTracker
from evaluators.slurm.pilot.allocation import (
    AllocationRequest,
    HeldAllocation,
    RunningAllocation,
    UserAllocation,
)
from evaluators.slurm.pilot.scheduler import PATIENCE_S, GroupShares, schedule_trials
from evaluators.slurm.pilot.trial import (
    OrphanedSteps,
    PilotContext,
    PilotTrial,
    StepPlace,
    StepProcess,
    prepare,
    read_step_place,
    start,
    this_host,
)
from evaluators.time_limit import longest_s
from evaluators.trial import TrialProgress, TrialRequest

BUSY_S = 0.02
"""Between two looks at running trials: what is lost when one ends."""
IDLE_S = 0.2
RESCHEDULE_S = 1.0
"""After so long waiting trials are looked at again even where nothing has changed."""


class Dispatcher:
    """Starts trials on nodes of the allocation and detects their ends.

    Args:
        trials: the folder of all trials.
        nodes: minimum size of a requested allocation.
    """

    def __init__(self, context: PilotContext, *, trials: Path, nodes: int | None) -> None:
        self.context = context
        self._orphans = OrphanedSteps(trials)
        self._shares = GroupShares()
        self.policy = AllocationPolicy(context, self._orphans, trials=trials, nodes=nodes)
        self._last_seen: object = None
        self._scheduled_at = float("-inf")

    def advance(self, trials: Sequence[PilotTrial]) -> None:
        """Bring all trials and the allocation forward."""
        self._orphans.look()
        for trial in trials:
            self._advance(trial)
        self.policy.advance(trials)
        now, allocation = time.monotonic(), self.context.allocation.running
        states = Counter(trial.state for trial in trials)
        seen = (
            states,
            allocation and (allocation.job_id, allocation.nodes),
            self.context.tracker.trouble,
        )
        if seen != self._last_seen or now - self._scheduled_at > RESCHEDULE_S:
            self._start_trials(trials, allocation, now)
            self._last_seen, self._scheduled_at = seen, now

    def _advance(self, trial: PilotTrial) -> None:
        if trial.state is AttemptState.NEW:
            self._take_up(trial)
        elif trial.state is AttemptState.PENDING and trial.cancelled:
            trial.settle(TrialState.CANCELLED, "cancelled")
        elif trial.state is AttemptState.RUNNING:
            assert trial.process
            if not trial.process.alive():
                node_seconds = trial.width * (time.monotonic() - trial.began)
                self._shares.charge(trial.request.group, node_seconds)
                trial.processes_gone()
            elif trial.cancelled:
                trial.process.end()
        elif trial.state is AttemptState.COMPLETING:
            trial.advance()

    def _take_up(self, trial: PilotTrial) -> None:
        folder = trial.attempt.folder
        files, place = read_attempt_files(folder), read_step_place(folder)
        process = self._orphans.adopt(trial.attempt)
        here = place is None or place.host == this_host()
        if process and place:
            trial.run(StepProcess(trial.attempt, process), place)
        elif files.end or (files.claimed and here):
            trial.place = place
            trial.processes_gone()
        elif files.claimed and place:
            trial.run(StepProcess(trial.attempt, None), place)
        elif files.intended_at is not None and not (place and here):
            # Another host, or a job of its own, may yet begin this attempt: it is not to.
            self.context.tracker.cancel(trial.attempt.name)
            write_abandoned(folder, status="lost", reason="it never began", duration_s=0.0)
            trial.begin_next_attempt("to be started again")
        else:
            trial.wait("")

    def _start_trials(
        self, trials: Sequence[PilotTrial], allocation: RunningAllocation | None, now: float
    ) -> None:
        waiting = sorted(_waiting(trials), key=lambda trial: trial.arrived)
        trouble = self.context.tracker.trouble
        if any(now < trial.no_step_before for trial in trials):
            trouble = trouble or "Slurm makes no steps at the moment"
        if allocation is None or trouble:
            for trial in waiting:
                _say(trial, trouble or self.context.allocation.waiting)
            return
        usable, free = self.policy.usable(allocation), self._free_nodes(allocation, trials)
        roomless: dict[PilotTrial, str] = {}
        reasons = {
            trial: why_unfit(trial.request, allocation, usable, now=time.time())
            for trial in waiting
        }
        if not any(
            reason and now - trial.arrived > PATIENCE_S for trial, reason in reasons.items()
        ):
            self._shares.at_work(trial.request.group for trial in trials if trial.reading is None)
            ready = [trial for trial, reason in reasons.items() if not reason]
            roomless = self._fill(trials, ready, allocation, usable, free)
        for trial, reason in reasons.items():
            if reason:
                _say(trial, f"waiting for the next allocation: {reason}")
            elif trial.state is AttemptState.PENDING:
                wanted = f"waiting for {trial.width} of the allocation's {len(usable)} nodes"
                _say(trial, roomless.get(trial) or f"{wanted}: {len(free)} are free")

    def _fill(
        self,
        trials: Sequence[PilotTrial],
        ready: Sequence[PilotTrial],
        allocation: RunningAllocation,
        usable: Sequence[str],
        free: set[str],
    ) -> dict[PilotTrial, str]:
        """Start the trials that fit, and remove their nodes from `free`. Return the trials that
        wait for disk space, with the message."""
        roomless: dict[PilotTrial, str] = {}
        now = time.monotonic()
        nodes: Counter[str] = Counter()
        for trial in trials:
            nodes[trial.request.group] += trial.width if trial.holds_nodes else 0
        schedule = schedule_trials(
            usable,
            free=free,
            waiting=[trial.as_waiting(now) for trial in ready],
            shares=self._shares.of(nodes),
        )
        for trial in ready:
            token = trial.request.token
            if chosen := schedule.starts.get(token):
                place = StepPlace(job_id=allocation.job_id, nodes=chosen, host=this_host())
                if trouble := self._launch(trial, place):
                    roomless[trial] = trouble
                else:
                    free -= set(chosen)
            elif token in schedule.passed_over:
                trial.pass_over(schedule.passed_over[token], now)
        return roomless

    def _launch(self, trial: PilotTrial, place: StepPlace) -> str:
        """Start the trial there, or end it if it can never run; return what blocks it for the
        moment."""
        context = self.context
        try:
            prepare(trial.attempt, place, context.profile, context.program)
            process = start(trial.attempt, place, environment=context.tracker.slurm.environment())
        except (OSError, ValueError) as error:
            if is_file_system_failure(error):
                return f"its folder cannot be written: {error}"
            never = never_prepared(error)
            trial.settle(never.status, never.error)
        else:
            trial.run(process, place)
        return ""

    def _free_nodes(self, allocation: RunningAllocation, trials: Sequence[PilotTrial]) -> set[str]:
        places = [trial.place for trial in trials if trial.holds_nodes and trial.place]
        places += self._orphans.places(allocation.job_id)
        taken = {
            node for place in places if place.job_id == allocation.job_id for node in place.nodes
        }
        return set(allocation.nodes) - taken


def _say(trial: PilotTrial, reason: str) -> None:
    if isinstance(trial.answer, TrialProgress) and trial.answer.reason != reason:
        trial.answer = TrialProgress(phase="waiting", reason=reason)


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
        if all(trial.state is AttemptState.ENDED for trial in trials) and not self._orphaned:
            self._allocation.leave()

    @property
    def _orphaned(self) -> bool:
        allocation = self._allocation.running
        return allocation is not None and bool(self._orphans.places(allocation.job_id))

    def _wanted(self, waiting: Sequence[PilotTrial]) -> AllocationRequest | None:
        if not waiting:
            return None
        widest = max(trial.width for trial in waiting)
        return AllocationRequest(
            nodes=self._pilot.nodes or max(self._nodes, widest),
            gpus_per_node=waiting[0].request.machine.gpus_per_node,
            exclude=self._excluded,
        )

    def _refuse(self, waiting: Sequence[PilotTrial]) -> None:
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


class PilotBackend(FollowingBackend[PilotTrial]):
    """Runs trials side by side in the allocation that this process was started in, or holds itself.

    All trials share one parent folder. A later object finds the allocation and its running trials
    again.

    Args:
        tracker: shared with other backends of the process. Default: its own.
        program: the trainer. Default: the profile's.
        nodes: size of an allocation if the profile names none: the most that a campaign may use. It
            is wider if a trial is.
    """

    name = "slurm"

    def __init__(
        self,
        profile: ClusterProfile,
        *,
        tracker: JobTracker | None = None,
        program: Program | None = None,
        nodes: int | None = None,
    ) -> None:
        super().__init__(profile, program)
        self.tracker = tracker or JobTracker.of(profile)
        self._owns_tracker = tracker is None
        self._nodes = nodes
        self._dispatcher: Dispatcher | None = None

    def leave(self) -> None:
        """Release the allocation, unless something waits for it or runs in it. Call before `close`.

        Use it when no work is expected soon: the next allocation may wait long in the queue.
        """
        self._end_thread()
        if self._dispatcher:
            self._dispatcher.policy.leave(list(self._trials.values()))

    def close(self) -> None:
        """Detach: trials keep running, and the allocation is held for a while."""
        self._end_thread()
        if self._dispatcher:
            self._dispatcher.context.allocation.close()
        self._dispatcher = None
        if self._owns_tracker:
            self.tracker.close()
        super().close()

    def _begin(self, request: TrialRequest) -> PilotTrial:
        if self._dispatcher is None:
            trials = request.directory.parent
            context = PilotContext(
                profile=self._profile,
                program=self._program,
                readers=self._readers,
                tracker=self.tracker,
                allocation=UserAllocation.here(self.tracker)
                or HeldAllocation(self._profile, self.tracker, trials),
            )
            self._dispatcher = Dispatcher(context, trials=trials, nodes=self._nodes)
        trial = PilotTrial.of(request, self._dispatcher.context)
        self._follow()
        return trial

    def _round(self, trials: Sequence[PilotTrial]) -> float:
        assert self._dispatcher
        self._dispatcher.advance(trials)
        return BUSY_S if any(trial.state is AttemptState.RUNNING for trial in trials) else IDLE_S
