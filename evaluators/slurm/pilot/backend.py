"""Trials as steps of one allocation."""

from __future__ import annotations

from evaluators.attempt.attempt import attempts_of
from evaluators.attempt.driver import TrialBackend, result_readers
from evaluators.cluster.profile import ClusterProfile
from evaluators.program import Program
from evaluators.program.support import program_of
from evaluators.slurm.commands import Slurm
from evaluators.slurm.job_tracker import JobTracker
from evaluators.slurm.pilot.allocation import HeldAllocation, UserAllocation
from evaluators.slurm.pilot.dispatcher import Dispatcher
from evaluators.slurm.pilot.pilot_trial import PilotContext, PilotTrial
from evaluators.slurm.pilot.step import StepCleanup
from evaluators.trial import TrialRequest


class PilotBackend(TrialBackend[PilotTrial]):
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
        super().__init__()
        self.tracker = tracker or JobTracker.of(profile)
        self.cleanup = StepCleanup(Slurm.of(profile))
        self._owns_tracker = tracker is None
        self._profile = profile
        self._program = program or program_of(profile)
        self._nodes = nodes
        self._readers = result_readers(self.name)
        self._dispatcher: Dispatcher | None = None

    def leave(self) -> None:
        """Release the allocation, unless something waits for it or runs in it. Call before `close`.

        Use it when no work is expected soon: the next allocation may wait long in the queue.
        """
        if self._dispatcher:
            self._dispatcher.leave()

    def close(self) -> None:
        """Detach: trials keep running, and the allocation is held for a while."""
        if self._dispatcher:
            self._dispatcher.close()
        self.cleanup.close()
        if self._owns_tracker:
            self.tracker.close()
        self._readers.shutdown(wait=True, cancel_futures=True)
        self._dispatcher = None
        self._trials.clear()

    def _begin(self, request: TrialRequest) -> PilotTrial:
        """Hand the trial to the dispatcher, which recovers it from its folder."""
        if self._dispatcher is None:
            trials = request.directory.parent
            context = PilotContext(
                profile=self._profile,
                program=self._program,
                readers=self._readers,
                tracker=self.tracker,
                allocation=UserAllocation.here(self.tracker)
                or HeldAllocation(self._profile, self.tracker, trials),
                cleanup=self.cleanup,
            )
            self._dispatcher = Dispatcher(context, trials=trials, nodes=self._nodes)
        trial = PilotTrial.of(request, self._dispatcher.context)
        self._dispatcher.add(trial)
        return trial

    def _resume(self, request: TrialRequest) -> PilotTrial | None:
        return self._begin(request) if attempts_of(request) else None

    def _forget(self, trial: PilotTrial) -> None:
        if self._dispatcher:
            self._dispatcher.remove(trial.request.token)
