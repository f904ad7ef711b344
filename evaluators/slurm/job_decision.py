"""What became of an attempt, from what lies in its folder and what Slurm says. Pure.

The folder comes before Slurm: a job that says how it ended has ended so, unless Slurm ended it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import takewhile

from autotune.schemas import TrialState
from evaluators.program import AttemptEnd
from evaluators.slurm.attempt_files import AttemptFiles
from evaluators.slurm.jobs import SlurmJob
from evaluators.slurm.pending_reasons import why_pending
from evaluators.trial import TrialProgress

SETTLE_S = 3.0
"""After so long a job that was submitted is in the queue, and a file that was written is seen."""
_TIMEOUT_CODES = frozenset({124, 137})

FOLDER_NOT_SHARED = (
    "its job ended and left nothing in the trial's folder: the nodes cannot see the folder of the"
    " trials, or cannot write there (it must be on a file system that they share)"
)
NODE_FAILED = "a node failed under it"
_RETRIED = {
    "NODE_FAIL": (TrialState.NODE_FAIL, NODE_FAILED),
    "BOOT_FAIL": (TrialState.NODE_FAIL, "a node did not boot"),
    "PREEMPTED": (TrialState.PREEMPTED, "a job of higher priority took its nodes"),
}
_ENDED_BY_SLURM = {
    "TIMEOUT": (TrialState.TIMEOUT, "Slurm ended it at the job's time limit"),
    "DEADLINE": (TrialState.TIMEOUT, "Slurm ended it at the job's deadline"),
    "OUT_OF_MEMORY": (TrialState.OOM, "Slurm ended it: it ran out of the node's memory"),
}


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """What Slurm says of one name. Times are epochs by this machine's clock.

    Attributes:
        jobs: of this name: all that the queue knows, and what accounting knows besides.
        asked_at: when the newest status call began that was answered; None: none was.
        absent_since: when the first of the newest status calls began that showed no waiting or
            running job of the name; None while there is one, or nothing was asked.
        accounted: accounting was asked since then too, or there is none.
        now: when this is judged.
    """

    now: float
    jobs: Sequence[SlurmJob] = ()
    asked_at: float | None = None
    absent_since: float | None = None
    accounted: bool = False

    @property
    def settled(self) -> bool:
        return self.absent_since is not None and self.now - self.absent_since >= SETTLE_S


@dataclass(frozen=True, kw_only=True)
class Abandon:
    """This attempt is over through no fault of the trial: another may follow."""

    ended: AttemptEnd


@dataclass(frozen=True)
class SubmitAgain:
    """No job of this name exists: submit the same attempt."""


@dataclass(frozen=True, kw_only=True)
class AskAccounting:
    """Accounting may know more; until it has been asked, the trial stands so."""

    standing: TrialProgress


Decision = TrialProgress | AttemptEnd | Abandon | SubmitAgain | AskAccounting


def judge(
    evidence: AttemptFiles,
    sight: JobStatus,
    *,
    time_limit_s: float,
    submitted_at: float | None = None,
    begun_by: float | None = None,
    cancelled: bool = False,
) -> Decision:
    """What became of an attempt that was to be submitted.

    Args:
        submitted_at: when sbatch last ended, however it did; the intent's time where unknown.
        begun_by: when the claim was first seen (epoch by this machine's clock): a status call of
            before may show a job as waiting that has begun since.
        cancelled: whether we were asked to end it.
    """
    case = _Case(evidence, sight, time_limit_s=time_limit_s, cancelled=cancelled)
    if evidence.end:
        return case.ended()
    if evidence.claimed:
        return case.begun(begun_by if begun_by is not None else sight.now)
    return case.not_begun(submitted_at or evidence.intended_at or 0.0)


class _Case:
    """One attempt, and the job of its name that counts."""

    def __init__(
        self, evidence: AttemptFiles, sight: JobStatus, *, time_limit_s: float, cancelled: bool
    ) -> None:
        self._evidence = evidence
        self._sight = sight
        self._time_limit_s = time_limit_s
        self._cancelled = cancelled
        self._job = _counting(sight.jobs, evidence)

    def ended(self) -> Decision:
        """Its script came to its end; but Slurm may have ended what the script ran."""
        assert self._evidence.end
        code = self._evidence.end.exit_code
        if code == 0:
            return self._over(None)
        if self._cancelled:
            return self._over(TrialState.CANCELLED, "cancelled")
        if code in _TIMEOUT_CODES and self._evidence.end.duration_s >= self._time_limit_s - 1:
            return self._over(
                TrialState.TIMEOUT, f"over its time limit of {self._time_limit_s:g} s"
            )
        if self._job and self._job.finished:
            return self._finished(self._job)
        if self._job or self._sight.absent_since is None:
            return self._standing()  # until Slurm has said why
        return self._over(None)

    def begun(self, begun_by: float) -> Decision:
        """A job began it, and has not said how it ended."""
        job = self._job
        if job is None:
            return self._vanished()
        if job.finished:
            return self._finished(job)
        if job.waits and not job.suspended and (self._sight.asked_at or 0.0) > begun_by:
            return self._retry(TrialState.PREEMPTED, "Slurm took its nodes and put it back")
        return self._standing()

    def not_begun(self, submitted_at: float) -> Decision:
        """No job has touched its folder."""
        if self._job is None:
            return self._absent(submitted_at)
        if self._job.finished:
            return self._finished(self._job)
        return self._standing()

    def _vanished(self) -> Decision:
        if self._cancelled and self._sight.absent_since is not None:
            return self._over(TrialState.CANCELLED, "cancelled")
        if not self._sight.settled:
            return self._standing()
        if not self._sight.accounted:
            return AskAccounting(standing=self._standing())
        return self._retry(TrialState.LOST, "its job vanished from Slurm without a word")

    def _absent(self, submitted_at: float) -> Decision:
        asked_at = self._sight.asked_at
        if asked_at is None or asked_at - submitted_at < SETTLE_S:
            return self._standing()
        if self._cancelled:
            return self._over(TrialState.CANCELLED, "cancelled")
        if not self._sight.accounted:
            return AskAccounting(standing=self._standing())
        return SubmitAgain()

    def _finished(self, job: SlurmJob) -> Decision:
        """Slurm says how its job ended."""
        if self._cancelled:
            return self._over(TrialState.CANCELLED, "cancelled")
        if job.state in _RETRIED:
            return self._retry(*_RETRIED[job.state])
        if job.state == "CANCELLED":
            return self._cancelled_by(job)
        if job.state in _ENDED_BY_SLURM:
            return self._over(*_ENDED_BY_SLURM[job.state])
        if self._evidence.end:
            return self._over(None)
        return self._unsaid(job)

    def _cancelled_by(self, job: SlurmJob) -> Decision:
        if job.cancelled_by is None and not self._sight.accounted:
            standing = self._standing()
            return AskAccounting(standing=standing) if self._sight.settled else standing
        who = "somebody else" if job.cancelled_by is None else f"user {job.cancelled_by}"
        return self._over(
            TrialState.CANCELLED, f"its job was cancelled by {who}, and not by this campaign"
        )

    def _unsaid(self, job: SlurmJob) -> Decision:
        """Its job has ended and its folder does not say how."""
        if not self._sight.settled:
            return self._standing()
        if not self._evidence.claimed:
            return self._over(TrialState.CRASHED, FOLDER_NOT_SHARED)
        if job.state == "FAILED":
            return self._over(None)
        return self._retry(TrialState.LOST, "its job ended and did not say how")

    def _standing(self) -> TrialProgress:
        job = self._job
        if job and job.waits and (job.suspended or not self._evidence.claimed):
            return TrialProgress(phase="waiting", reason=why_pending(job), job_id=job.id)
        if job is None and not self._evidence.claimed:
            return TrialProgress(
                phase="waiting", reason="being submitted to Slurm", job_id=self._evidence.job_id
            )
        return TrialProgress(phase="running", job_id=self._job_id(), host=self._host())

    def _retry(self, status: TrialState, reason: str) -> Decision:
        if self._cancelled:
            return self._over(TrialState.CANCELLED, "cancelled")
        return Abandon(ended=self._over(status, reason))

    def _over(self, status: TrialState | None, reason: str = "") -> AttemptEnd:
        began_at, duration_s = self._times()
        end, job = self._evidence.end, self._job
        return AttemptEnd(
            status=status,
            reason=reason,
            exit_code=end.exit_code if end else (job.exit_code if job else None),
            started_at=datetime.fromtimestamp(began_at, UTC),
            duration_s=duration_s,
            host=self._host(),
            job_id=self._job_id(),
        )

    def _times(self) -> tuple[float, float]:
        """(epoch of begin, seconds that the nodes were held)."""
        end, claim, job = self._evidence.end, self._evidence.claim, self._job
        if end:
            return end.began_at, end.duration_s
        if job and job.started_at and job.ended_at:
            return job.started_at, max(0.0, job.ended_at - job.started_at)
        if claim:  # until it was missed, or its limit: the nodes were not held for longer
            held = (self._sight.absent_since or self._sight.now) - claim.at
            return claim.at, min(max(0.0, held), self._time_limit_s)
        return self._evidence.intended_at or self._sight.now, 0.0

    def _host(self) -> str:
        claim = self._evidence.claim
        return claim.nodes if claim else (self._job.nodes if self._job else "")

    def _job_id(self) -> str | None:
        claim = self._evidence.claim
        if claim:
            return claim.job_id
        return self._job.id if self._job else self._evidence.job_id


def _counting(jobs: Sequence[SlurmJob], evidence: AttemptFiles) -> SlurmJob | None:
    """Of several jobs of one name the one that began; before that, one that still may.

    An id is given again by a controller that was rolled back, which is why only jobs of this name
    are looked at.
    """
    if evidence.claim:
        mine = [job for job in jobs if job.id == evidence.claim.job_id]
        return _latest(mine)
    return _latest([job for job in jobs if not job.finished]) or _latest(jobs)


def _latest(jobs: Sequence[SlurmJob]) -> SlurmJob | None:
    return max(jobs, key=lambda job: job.submitted_at or 0.0, default=None)


# `Task launch … failed on node n05` is a slurmd that does not answer and is not yet down.
_NODE_FAILED = re.compile(
    r"srun: error: (?:Node failure on|Task launch for \S+ failed on node) ([\w.-]+)"
)
_NOT_CREATED = re.compile(
    r"srun: error: (?:Unable to (?:create step for job|confirm allocation for job) \d+: (.+)"
    r"|Unable to contact slurm controller)"
)
_SLURMS_WORDS = ("srun:", "slurmstepd:")
# Only a step has a daemon, and tasks that end; and a srun that had to wait for it says so.
_THERE_WAS_A_STEP = re.compile(r"slurmstepd:|srun: error: \S+: tasks? |srun: Step created")


@dataclass(frozen=True, kw_only=True)
class StepRefused:
    """Slurm made no step, for a reason that passes: the same is tried again."""

    ended: AttemptEnd


def decide_step(
    ended: AttemptEnd, log_end: str, *, cancelled: bool
) -> AttemptEnd | Abandon | StepRefused:
    """The end as it was, unless Slurm and not the trial is to blame for it.

    Args:
        log_end: the last lines of the attempt's log.
        cancelled: whether we were asked to end it: then it is not tried again.
    """
    # srun may exit with 0 where the only node of a step failed.
    failed = bool(failed_nodes(log_end))
    refusal = why_no_step(log_end) if ended.exit_code else ""
    if ended.status is not None or not (failed or refusal):
        return ended
    if cancelled:
        return replace(ended, status=TrialState.CANCELLED, reason="cancelled")
    if failed:
        return Abandon(ended=replace(ended, status=TrialState.NODE_FAIL, reason=NODE_FAILED))
    reason = f"Slurm did not start its step: {refusal}"
    return StepRefused(ended=replace(ended, status=TrialState.LOST, reason=reason))


def failed_nodes(log_end: str) -> frozenset[str]:
    """The nodes that srun says have failed under its step."""
    return frozenset(_NODE_FAILED.findall(log_end))


def why_no_step(log_end: str) -> str:
    """In Slurm's words, why there was no step at all; empty where there was one.

    Only what a log ends with tells: a controller that is away for a moment is complained about by
    a srun whose step then runs, and fails for a reason of its own.
    """
    last = [line for line in log_end.splitlines() if line.strip()]
    last = list(takewhile(lambda line: line.startswith(_SLURMS_WORDS), reversed(last)))
    if any(_THERE_WAS_A_STEP.match(line) for line in last):
        return ""
    refusals = (match for line in last if (match := _NOT_CREATED.match(line)))
    newest = next(refusals, None)
    return (newest.group(1) or "Unable to contact slurm controller") if newest else ""
