"""Trials as steps of one allocation."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from evaluators.attempt.attempt import attempts_of
from evaluators.attempt.trial_result import mark_cancelled
from evaluators.cluster.profile import ClusterProfile
from evaluators.program import Program
from evaluators.program.support import program_of
from evaluators.slurm.commands import Slurm
from evaluators.slurm.job_tracker import JobTracker
from evaluators.slurm.pilot.allocation import UserAllocation
from evaluators.slurm.pilot.dispatcher import Dispatcher
from evaluators.slurm.pilot.held_allocation import HeldAllocation
from evaluators.slurm.pilot.pilot_trial import PilotContext, PilotTrial
from evaluators.slurm.pilot.step_cleanup import StepCleanup
from evaluators.trial import TrialOutcome, TrialProgress, TrialRequest
from evaluators.trial_files import read_result

READERS = 4


class PilotBackend:
    """Trials side by side in the allocation that this process was started in, or holds itself.

    All trials lie beside each other in one folder. An object made later finds the allocation, and
    the trials that run in it, again.

    Args:
        tracker: shared with other backends of the process; one of its own otherwise.
        program: what trains; the profile's otherwise.
        nodes: of an allocation, where the profile names no number: as many as a campaign may use.
            It is wider where a trial is.
    """

    name = "slurm"
    simulated = False

    def __init__(
        self,
        profile: ClusterProfile,
        *,
        tracker: JobTracker | None = None,
        program: Program | None = None,
        nodes: int | None = None,
    ) -> None:
        self.tracker = tracker or JobTracker.of(profile)
        self.cleanup = StepCleanup(Slurm.of(profile))
        self._owns_tracker = tracker is None
        self._profile = profile
        self._program = program or program_of(profile)
        self._nodes = nodes
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="slurm-results")
        self._dispatcher: Dispatcher | None = None
        self._lock = threading.RLock()

    def submit(self, request: TrialRequest) -> None:
        """Queue the trial, unless its token is known or has a result: then do nothing."""
        with self._lock:
            if self._known(request) is None and read_result(request.directory) is None:
                self._take(PilotTrial.of(request))

    def poll(self, requests: Sequence[TrialRequest]) -> Mapping[str, TrialOutcome | TrialProgress]:
        """Return by token the outcome of each trial that has ended, and how each other one stands.

        A trial that was never started is left out.
        """
        with self._lock:
            answers = {request.token: self._answer(request) for request in requests}
        return {token: answer for token, answer in answers.items() if answer}

    def cancel(self, token: str) -> None:
        """End the trial's processes; its outcome becomes `cancelled` once they have ended."""
        trial = self._dispatcher.trial(token) if self._dispatcher else None
        if trial is None or trial.cancelled:
            return
        mark_cancelled(trial.request)
        trial.cancelled = True

    def leave(self) -> None:
        """Give the allocation back, unless something waits for it or runs in it; before `close`.

        For whoever knows that nobody will want it soon: the next one may wait long in the queue.
        """
        if self._dispatcher:
            self._dispatcher.leave()

    def close(self) -> None:
        """Let go: what runs in the allocation runs on, and the allocation waits for a while."""
        if self._dispatcher:
            self._dispatcher.close()
        self.cleanup.close()
        if self._owns_tracker:
            self.tracker.close()
        self._readers.shutdown(wait=True, cancel_futures=True)
        self._dispatcher = None

    def _known(self, request: TrialRequest) -> PilotTrial | None:
        """Return the trial, where it is under way, perhaps since before this object was made."""
        trial = self._dispatcher.trial(request.token) if self._dispatcher else None
        if trial is None and read_result(request.directory) is None and attempts_of(request):
            trial = self._take(PilotTrial.of(request))
        return trial

    def _answer(self, request: TrialRequest) -> TrialOutcome | TrialProgress | None:
        trial = self._known(request)
        if trial is None:
            return read_result(request.directory)
        answer = trial.answer
        if isinstance(answer, TrialOutcome) and self._dispatcher and read_result(request.directory):
            self._dispatcher.remove(request.token)
        return answer

    def _take(self, trial: PilotTrial) -> PilotTrial:
        """Hand the trial to the dispatcher; the first one starts it."""
        if self._dispatcher is None:
            trials = trial.request.directory.parent
            allocation = UserAllocation.here(self.tracker) or HeldAllocation(
                self._profile, self.tracker, trials
            )
            context = PilotContext(
                profile=self._profile,
                program=self._program,
                tracker=self.tracker,
                allocation=allocation,
                cleanup=self.cleanup,
                readers=self._readers,
            )
            self._dispatcher = Dispatcher(context, trials=trials, nodes=self._nodes)
        self._dispatcher.add(trial)
        return trial
