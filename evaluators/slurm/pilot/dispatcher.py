"""The thread of pilot mode: sees trials end, and starts the next ones on free nodes."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from autotune.schemas import TrialState
from evaluators.slurm.attempt_files import read_attempt_files, write_abandoned
from evaluators.slurm.pilot.allocation import RunningAllocation
from evaluators.slurm.pilot.allocation_policy import AllocationPolicy, why_unfit
from evaluators.slurm.pilot.pilot_trial import Endings, Phase, PilotContext, PilotTrial
from evaluators.slurm.pilot.scheduler import PATIENCE_S, Shares, pack
from evaluators.slurm.pilot.step import (
    OrphanedSteps,
    Run,
    StepPlace,
    prepare,
    read_step_place,
    start,
    this_host,
)
from evaluators.slurm.trial_result import why_not_submitted
from evaluators.trial import TrialProgress

BUSY_S = 0.02
"""Between two looks at running trials: what is lost when one ends."""
IDLE_S = 0.2
REPACK_S = 1.0
"""After so long waiting trials are looked at again even where nothing has changed."""
log = logging.getLogger(__name__)


class Dispatcher:
    """Safe to use from several threads: they hand in trials, and read what each is told.

    Args:
        trials: the folder of all trials.
        nodes: of an allocation that is asked for, at least.
    """

    def __init__(self, context: PilotContext, *, trials: Path, nodes: int | None) -> None:
        self._context = context
        self._endings = Endings(context)
        self._orphans = OrphanedSteps(trials)
        self._shares = Shares()
        self._policy = AllocationPolicy(
            context, self._endings, self._orphans, trials=trials, nodes=nodes
        )
        self._trials: dict[str, PilotTrial] = {}
        self._wake = threading.Condition()
        self._closed = False
        self._seen: object = None
        self._packed_at = float("-inf")
        self._thread = threading.Thread(target=self._run, name="slurm-pilot", daemon=True)
        self._thread.start()

    def trial(self, token: str) -> PilotTrial | None:
        with self._wake:
            return self._trials.get(token)

    def add(self, trial: PilotTrial) -> None:
        with self._wake:
            self._trials.setdefault(trial.request.token, trial)
            self._wake.notify_all()

    def remove(self, token: str) -> None:
        with self._wake:
            self._trials.pop(token, None)

    def close(self) -> None:
        """End the thread; trials run on."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                if self._closed:
                    return
                trials = list(self._trials.values())
            pause_s = BUSY_S if any(e.phase is Phase.RUNNING for e in trials) else IDLE_S
            try:
                self._round(trials)
            except Exception:
                log.exception("an unexpected error while dispatching trials")
                pause_s = REPACK_S
            with self._wake:
                if not self._closed and len(trials) == len(self._trials):
                    self._wake.wait(pause_s)

    def _round(self, trials: Sequence[PilotTrial]) -> None:
        self._orphans.look()
        for trial in trials:
            self._advance(trial)
        self._policy.advance(trials)
        now, room = time.monotonic(), self._context.allocation.room
        phases = Counter(trial.phase for trial in trials)
        seen = (phases, room and (room.job_id, room.nodes), self._context.tracker.trouble)
        if seen != self._seen or now - self._packed_at > REPACK_S:
            self._start(trials, room, now)
            self._seen, self._packed_at = seen, now

    def _advance(self, trial: PilotTrial) -> None:
        if trial.phase is Phase.NEW:
            self._take_up(trial)
        elif trial.phase is Phase.WAITING and trial.cancelled:
            self._endings.settle(trial, TrialState.CANCELLED, "cancelled")
        elif trial.phase is Phase.RUNNING:
            self._look_at(trial)
        elif trial.phase is Phase.ABANDONED:
            self._endings.advance(trial)
        elif trial.reading and trial.reading.done():
            trial.told = trial.reading.result()

    def _take_up(self, trial: PilotTrial) -> None:
        """Find out from its folder, and from the processes of this host, how far it has come."""
        folder = trial.attempt.folder
        evidence, place = read_attempt_files(folder), read_step_place(folder)
        process = self._orphans.claim(trial.attempt)
        here = place is None or place.host == this_host()
        if evidence.over:
            trial.next_attempt()
            trial.wait("to be started again")
        elif process and place:
            trial.runs(Run(trial.attempt, process, began_at=time.time()), place)
        elif evidence.end or (evidence.claimed and here):
            trial.place = place
            self._endings.over(trial)
        elif evidence.claimed and place:
            began_at = evidence.claim.at if evidence.claim else time.time()
            trial.runs(Run(trial.attempt, None, began_at=began_at), place)
        elif evidence.intended_at is not None and not (place and here):
            self._leave_behind(trial)
        else:
            trial.wait("")

    def _leave_behind(self, trial: PilotTrial) -> None:
        """Another host, or a job of its own, may yet begin this attempt: it is not to."""
        self._context.tracker.cancel(trial.attempt.name)
        write_abandoned(
            trial.attempt.folder, status="lost", reason="it never began", duration_s=0.0
        )
        trial.next_attempt()
        trial.wait("to be started again")

    def _look_at(self, trial: PilotTrial) -> None:
        assert trial.run
        if trial.run.alive():
            if trial.cancelled:
                trial.run.end()
            return
        self._shares.charge(trial.request.group, trial.width * (time.monotonic() - trial.began))
        self._endings.over(trial)

    def _start(
        self, trials: Sequence[PilotTrial], room: RunningAllocation | None, now: float
    ) -> None:
        waiting = [trial for trial in trials if trial.phase is Phase.WAITING]
        waiting.sort(key=lambda trial: trial.arrived)
        trouble = self._context.tracker.trouble
        if now < self._endings.no_step_before:
            trouble = trouble or "Slurm makes no steps at the moment"
        if room is None or trouble:
            for trial in waiting:
                _say(trial, trouble or self._context.allocation.waiting)
            return
        usable, free = self._policy.usable(room), self._free(room, trials)
        reasons = {e: why_unfit(e.request, room, usable, now=time.time()) for e in waiting}
        if not any(reason and now - e.arrived > PATIENCE_S for e, reason in reasons.items()):
            self._shares.at_work(e.request.group for e in trials if e.phase is not Phase.READING)
            ready = [e for e, reason in reasons.items() if not reason]
            self._pack(trials, ready, room, usable, free)
        for trial, reason in reasons.items():
            if reason:
                _say(trial, f"waiting for the next allocation: {reason}")
            elif trial.phase is Phase.WAITING:
                wanted = f"waiting for {trial.width} of the allocation's {len(usable)} nodes"
                _say(trial, f"{wanted}: {len(free)} are free")

    def _pack(
        self,
        trials: Sequence[PilotTrial],
        ready: Sequence[PilotTrial],
        room: RunningAllocation,
        usable: Sequence[str],
        free: set[str],
    ) -> None:
        """Start what fits; its nodes are taken out of `free`."""
        now = time.monotonic()
        held: Counter[str] = Counter()
        for trial in trials:
            held[trial.request.group] += trial.width if trial.holds_nodes else 0
        packing = pack(
            usable,
            free=free,
            waiting=[trial.waiting(now) for trial in ready],
            shares=self._shares.of(held),
        )
        for trial in ready:
            token = trial.request.token
            if chosen := packing.starts.get(token):
                self._launch(trial, StepPlace(job_id=room.job_id, nodes=chosen, host=this_host()))
                free -= set(chosen)
            elif token in packing.passed_over:
                trial.pass_over(packing.passed_over[token], now)

    def _launch(self, trial: PilotTrial, place: StepPlace) -> None:
        context = self._context
        try:
            prepare(trial.attempt, place, context.profile, context.program)
            run = start(trial.attempt, place, environment=context.tracker.slurm.environment())
        except (OSError, ValueError) as error:
            self._endings.settle(trial, *why_not_submitted(error))
        else:
            trial.runs(run, place)

    def _free(self, room: RunningAllocation, trials: Sequence[PilotTrial]) -> set[str]:
        """On which nothing runs: neither a trial of ours, nor one of an earlier process."""
        places = [trial.place for trial in trials if trial.holds_nodes and trial.place]
        places += self._orphans.places(room.job_id)
        taken = {node for place in places if place.job_id == room.job_id for node in place.nodes}
        return set(room.nodes) - taken


def _say(trial: PilotTrial, reason: str) -> None:
    if isinstance(trial.told, TrialProgress) and trial.told.reason != reason:
        trial.told = TrialProgress(phase="waiting", reason=reason)
