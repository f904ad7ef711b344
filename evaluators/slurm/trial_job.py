"""One trial's way through its attempts, to one outcome."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, replace

from autotune.files import write_whole
from autotune.schemas import TrialState
from evaluators.cluster.profile import ClusterProfile
from evaluators.program import AttemptEnd, Program
from evaluators.slurm.attempt_files import (
    CANCELLED,
    Attempt,
    AttemptFiles,
    attempts_of,
    nodes_to_exclude,
    note_failed_nodes,
    read_attempt_files,
    read_log_end,
)
from evaluators.slurm.batch_script import (
    BODY_SCRIPT,
    JOB_SCRIPT,
    body_script,
    job_script,
    launcher_of,
)
from evaluators.slurm.job_decision import (
    Abandon,
    AskAccounting,
    Decision,
    JobStatus,
    StepRefused,
    SubmitAgain,
    decide_step,
    failed_nodes,
    judge,
)
from evaluators.slurm.job_records import SubmitState, SubmitStatus
from evaluators.slurm.job_tracker import JobTracker
from evaluators.slurm.submit_queue import Submission
from evaluators.slurm.trial_result import (
    abandon,
    mark_cancelled,
    why_not_submitted,
    without_run,
    write_outcome,
)
from evaluators.trial import TrialOutcome, TrialProgress, TrialRequest

log = logging.getLogger(__name__)

LOOK_BACK_S = 3600.0
"""How long before its submission accounting is asked about a job: clocks differ."""
GLANCE_S = 0.02
"""Most logs are read in less: then the nodes need not wait for another look."""
_READING = TrialProgress(phase="running", reason="reading what it left")


@dataclass(frozen=True, kw_only=True)
class TrialContext:
    """What every trial of a backend needs."""

    profile: ClusterProfile
    program: Program
    tracker: JobTracker
    readers: Executor


class TrialJob:
    """One trial. All that it keeps can be had again from the folders and from Slurm."""

    def __init__(self, request: TrialRequest, context: TrialContext) -> None:
        self.request = request
        self._context = context
        self._cancelled = (request.directory / CANCELLED).exists()
        self._evidence = AttemptFiles()
        self._read_for: tuple[object, bool] | None = None
        self._reading: Future[TrialOutcome] | None = None
        self._told: tuple[int, TrialProgress] | None = None
        self._begun_by: float | None = None
        self._unseen = 0
        self._attempt = Attempt(request=request, number=1)

    @classmethod
    def found(cls, request: TrialRequest, context: TrialContext) -> TrialJob | None:
        """One that was begun before, taken up again; None where nothing was ever submitted."""
        job = cls(request, context)
        attempts = attempts_of(request)
        if not attempts:
            return None
        job._attempt = attempts[-1]
        evidence = read_attempt_files(job._attempt.folder)
        if evidence.over:
            job._begin(job._attempt.number + 1)
        elif evidence.intended_at is not None or evidence.claimed:
            job._follow(evidence)
        elif len(attempts) > 1:
            job._begin(job._attempt.number)
        else:
            return None
        return job

    @classmethod
    def begun(cls, request: TrialRequest, context: TrialContext) -> TrialJob:
        """A new one, whose first attempt is submitted."""
        job = cls(request, context)
        job._begin(1)
        return job

    @property
    def attempt(self) -> Attempt:
        return self._attempt

    def cancel(self) -> None:
        """A marker first: whatever happens from here on, the trial is to be ended."""
        if self._reading or self._cancelled:
            return
        mark_cancelled(self.request)
        self._cancelled, self._told = True, None
        self._context.tracker.cancel(self._attempt.name)

    def advance(self, *, mailed: bool) -> TrialOutcome | TrialProgress:
        """How it stands; `mailed`: the attempt's end lies in the ended_folder."""
        if self._reading is None:
            version = self._context.tracker.version
            if self._told and self._told[0] == version and not mailed:
                return self._told[1]
            standing = self._look(mailed=mailed)
            if self._read_for is not None and self._read_for[0]:
                self._told = (version, standing)  # nothing but the tracker can change it
            if self._reading is None:
                return standing
            wait([self._reading], timeout=GLANCE_S)
        return self._reading.result() if self._reading.done() else _READING

    def _look(self, *, mailed: bool) -> TrialProgress:
        tracker, name = self._context.tracker, self._attempt.name
        sent = tracker.submit_status(name)
        if sent.state is not SubmitState.TRIED:
            return self._unsent(sent)
        sight = tracker.status(name)
        self._read(sight, mailed=mailed)
        verdict = judge(
            self._evidence,
            sight,
            time_limit_s=self.request.protocol.time_limit_s,
            submitted_at=sent.at,
            begun_by=self._begun_by,
            cancelled=self._cancelled,
        )
        return self._act(verdict)

    def _read(self, sight: JobStatus, *, mailed: bool) -> None:
        """Look into the folder only when something may have changed there."""
        living = tuple((job.id, job.state) for job in sight.jobs if not job.finished)
        unsaid = self._evidence.end is None and (mailed or not living)
        if unsaid or self._read_for != (living, mailed):
            self._take_in(read_attempt_files(self._attempt.folder))
            self._read_for = (living, mailed)

    def _take_in(self, evidence: AttemptFiles) -> None:
        self._evidence = evidence
        if evidence.claimed and self._begun_by is None:
            self._begun_by = time.time()
        for job_id in (evidence.job_id, evidence.claim and evidence.claim.job_id):
            if job_id:
                self._context.tracker.recognise(self._attempt.name, job_id)

    def _act(self, verdict: Decision) -> TrialProgress:
        tracker, name = self._context.tracker, self._attempt.name
        if isinstance(verdict, AttemptEnd):
            return self._end(verdict)
        if isinstance(verdict, Abandon):
            return self._retry(verdict.ended)
        if isinstance(verdict, SubmitAgain):
            return self._submit_again()
        if isinstance(verdict, AskAccounting):
            since = self._evidence.intended_at or time.time()
            tracker.look_up(name, since=since - LOOK_BACK_S)
            verdict = verdict.standing
        if self._cancelled or self._evidence.end:
            tracker.watch(hurry=True)
        trouble = tracker.trouble
        if verdict.phase == "waiting" and trouble:
            return replace(verdict, reason=trouble)
        return verdict

    def _end(self, ended: AttemptEnd) -> TrialProgress:
        """Its end, unless srun says that the trial is not to blame for it."""
        said = read_log_end(self._attempt.folder)
        found = decide_step(ended, said, cancelled=self._cancelled)
        if isinstance(found, Abandon | StepRefused):
            return self._retry(found.ended)
        self._close(found)
        return _READING

    def _submit_again(self) -> TrialProgress:
        """Its job was never there, or left no trace: more than a few such jobs are no accident."""
        name = self._attempt.name
        self._unseen += self._evidence.job_id is not None
        if self._unseen >= self._context.profile.retries.attempts:
            self._settle(TrialState.LOST, "Slurm took its job several times and then knew none")
            return _READING
        log.warning("%s is not in the queue: it is submitted again", name)
        self._submit()
        return TrialProgress(phase="waiting", reason="being submitted to Slurm again")

    def _unsent(self, sent: SubmitStatus) -> TrialProgress:
        tracker, name = self._context.tracker, self._attempt.name
        if sent.state is SubmitState.REFUSED:
            self._settle(TrialState.REFUSED, f"sbatch refused it: {sent.error}")
        elif sent.state is SubmitState.FAILED:
            self._settle(*why_not_submitted(sent.error))
        elif self._cancelled and tracker.withdraw(name):
            self._settle(TrialState.CANCELLED, "cancelled")
        reason = tracker.trouble or tracker.full or "being submitted to Slurm"
        return TrialProgress(phase="waiting", reason=reason)

    def _begin(self, number: int) -> None:
        self._attempt = Attempt(request=self.request, number=number)
        self._evidence, self._begun_by = AttemptFiles(), None
        self._read_for, self._told = None, None
        self._submit()

    def _submit(self) -> None:
        attempt = self._attempt
        self._context.tracker.submit(
            Submission(
                name=attempt.name, folder=attempt.folder, prepare=lambda: self._prepare(attempt)
            )
        )
        if self._cancelled:
            self._context.tracker.cancel(attempt.name)

    def _follow(self, evidence: AttemptFiles) -> None:
        self._context.tracker.follow(
            self._attempt.name,
            submitted_at=evidence.intended_at or 0.0,
            since=evidence.first_intended_at,
        )
        self._take_in(evidence)
        if self._cancelled:
            self._context.tracker.cancel(self._attempt.name)

    def _prepare(self, attempt: Attempt) -> None:
        """Write what is run, just before it is submitted; in the tracker's thread."""
        profile, program = self._context.profile, self._context.program
        avoided = nodes_to_exclude(
            attempt.ended_folder.parent, failures=profile.retries.node_failures
        )
        launcher = launcher_of(profile, self.request)
        files = {
            **program.files(self.request, attempt.folder),
            BODY_SCRIPT: body_script(attempt, profile, program, launcher),
            JOB_SCRIPT: job_script(attempt, profile, exclude=avoided),
        }
        attempt.ended_folder.mkdir(parents=True, exist_ok=True)
        attempt.folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():  # a job of an earlier try may be reading them
            write_whole(attempt.folder / name, text)

    def _retry(self, ended: AttemptEnd) -> TrialProgress:
        """Another attempt, unless there were enough."""
        tracker, attempt = self._context.tracker, self._attempt
        trials = attempt.ended_folder.parent
        if ended.status is TrialState.NODE_FAIL:
            said = failed_nodes(read_log_end(attempt.folder))
            nodes = tracker.failed_nodes(attempt.name) | said
            note_failed_nodes(trials, name=attempt.name, nodes=sorted(nodes))
        most = self._context.profile.retries.attempts
        tracker.cancel(attempt.name)  # a job that Slurm put back, or a second one
        if attempt.number >= most:
            self._close(replace(ended, reason=f"{ended.reason}, in each of {most} attempts"))
            return _READING
        abandon(attempt, ended, status=str(ended.status))
        tracker.forget(attempt.name)
        self._begin(attempt.number + 1)
        return TrialProgress(phase="waiting", reason=f"to be started again: {ended.reason}")

    def _close(self, ended: AttemptEnd) -> None:
        folder, program = self._attempt.folder, self._context.program
        self._end_with(lambda: program.outcome(self.request, folder, ended))

    def _settle(self, status: TrialState, error: str) -> None:
        """An outcome without a job."""
        attempt = self._attempt
        self._end_with(lambda: without_run(attempt, status, error))

    def _end_with(self, read: Callable[[], TrialOutcome]) -> None:
        """Read what it left in another thread: a log may be gigabytes long."""
        self._context.tracker.forget(self._attempt.name)
        self._reading = self._context.readers.submit(write_outcome, self._attempt, read)
