"""Decisions about an attempt, which is a job or, in pilot mode, a step of an allocation: from its
files, its log and Slurm's report. Pure.

The folder takes precedence over Slurm: a job that recorded its end has ended that way, unless Slurm
ended it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import takewhile
from typing import ClassVar

from autotune.schemas.choices import TrialState
from evaluators import time_limit
from evaluators.attempt import WAITING, AttemptState, NeverSubmitted
from evaluators.cluster.profile import Polling
from evaluators.program import AttemptEnd
from evaluators.slurm.attempt_files import AttemptFiles
from evaluators.slurm.commands import SlurmJob, why_pending
from evaluators.trial import TrialProgress

FOLDER_NOT_SHARED = (
    "its job ended without writing to the trial's folder: the nodes cannot see or write it (it must"
    " be on a file system that they share)"
)
NODE_FAILED = "one of its nodes failed"
_NOT_ITS_FAULT = {
    "NODE_FAIL": (TrialState.NODE_FAIL, NODE_FAILED),
    "BOOT_FAIL": (TrialState.NODE_FAIL, "a node did not boot"),
    "PREEMPTED": (TrialState.PREEMPTED, "a job of higher priority took its nodes"),
}
_ENDED_BY_SLURM = {
    "TIMEOUT": (TrialState.TIMEOUT, "Slurm ended it at the job's time limit"),
    "DEADLINE": (TrialState.TIMEOUT, "Slurm ended it at the job's deadline"),
    "OUT_OF_MEMORY": (TrialState.OOM, "Slurm ended it: the memory of its job ran out"),
}


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """Slurm's report on one name. Times are `steady_time`, so setting the clock delays no attempt.

    Attributes:
        jobs: of this name, from the queue and from accounting.
        queried_at: start of the newest answered status call; None: no call was answered.
        absent_since: start of the first of the newest status calls that showed no waiting or
            running job of the name; None while there is one, or before any call.
        accounted: whether accounting, if there is any, and the states of the attempt's nodes were
            queried since then.
        accounting: whether this cluster has accounting, as far as is known.
        failed_nodes: nodes of the attempt that are down.
        now: time of the decision.
        settle_s, accounting_limit_s: see `Polling`.
    """

    now: float
    jobs: Sequence[SlurmJob] = ()
    queried_at: float | None = None
    absent_since: float | None = None
    accounted: bool = False
    accounting: bool = False
    failed_nodes: frozenset[str] = frozenset()
    settle_s: float = Polling.settle_s
    accounting_limit_s: float = Polling.accounting_limit_s

    @property
    def settled(self) -> bool:
        return self.absent_since is not None and self.now - self.absent_since >= self.settle_s

    @property
    def awaits_accounting(self) -> bool:
        waited_s = self.now - (self.now if self.absent_since is None else self.absent_since)
        return waited_s < self.accounting_limit_s and (self.accounting or not self.accounted)


@dataclass(frozen=True, kw_only=True)
class Stay:
    """No decision: the attempt stays in this state and is checked again.

    Attributes:
        reason: why it waits, in a sentence for the user.
        host: the nodes, as Slurm writes them.
        ask_accounting: whether accounting may know more.
    """

    state: AttemptState
    reason: str = ""
    job_id: str | None = None
    host: str = ""
    ask_accounting: bool = False

    @property
    def progress(self) -> TrialProgress:
        return TrialProgress(
            phase="waiting" if self.state in WAITING else "running",
            reason=self.reason,
            job_id=self.job_id,
            host=self.host,
        )


@dataclass(frozen=True)
class SubmitAgain:
    """No job of this name exists: submit the same attempt."""

    state: ClassVar = AttemptState.SUBMITTING


@dataclass(frozen=True, kw_only=True)
class EndAttempt:
    """The attempt has ended, and the trial with it."""

    end: AttemptEnd
    state: ClassVar = AttemptState.ENDED


@dataclass(frozen=True, kw_only=True)
class AbandonAttempt:
    """The attempt ended through no fault of the trial: another one may follow."""

    end: AttemptEnd
    state: ClassVar = AttemptState.ABANDONED


@dataclass(frozen=True, kw_only=True)
class RefusedStep:
    """Slurm created no step, for a temporary reason: try the same again."""

    end: AttemptEnd
    state: ClassVar = AttemptState.ABANDONED


Ended = EndAttempt | AbandonAttempt | RefusedStep
Decision = Stay | SubmitAgain | NeverSubmitted | Ended


def decide(
    files: AttemptFiles,
    status: JobStatus,
    *,
    time_limit_s: float,
    submitted_at: float | None = None,
    begun_by: float | None = None,
    cancelled: bool = False,
) -> Stay | SubmitAgain | EndAttempt | AbandonAttempt:
    """Return the decision about an attempt that was to be submitted.

    Args:
        submitted_at: when sbatch last ended, whatever its result; the intent's time if unknown.
        begun_by: when the claim was first seen (`steady_time`): an earlier status call may show a
            job as waiting that has begun since.
        cancelled: whether its cancellation was requested.
    """
    case = _Case(files, status, time_limit_s=time_limit_s, cancelled=cancelled)
    if files.end:
        return case.script_ended(files.end.exit_code, files.end.duration_s)
    if files.claimed:
        return case.begun(begun_by if begun_by is not None else status.now)
    return case.not_begun(submitted_at or files.intended_at or 0.0)


def blame_slurm(decision: EndAttempt, log_end: str, *, cancelled: bool) -> Ended:
    """Return the decision unchanged, unless srun's messages show that Slurm is to blame, not the
    trial.

    Args:
        log_end: the last lines of the attempt's log.
        cancelled: whether its cancellation was requested: then it is not tried again.
    """
    end = decision.end
    # srun may exit with 0 where the only node of a step failed, or none of its tasks was started.
    blame = "NODE_FAIL" if failed_nodes(log_end) else why_ended(log_end)
    refusal = why_never_launched(log_end) or (why_no_step(log_end) if end.exit_code else "")
    if end.status is not None or not (blame or refusal):
        return decision
    if cancelled:
        return EndAttempt(end=replace(end, status=TrialState.CANCELLED, reason="cancelled"))
    if blame:
        status, reason = _NOT_ITS_FAULT[blame]
        return AbandonAttempt(end=replace(end, status=status, reason=reason))
    reason = f"Slurm did not start its step: {refusal}"
    return RefusedStep(end=replace(end, status=TrialState.LOST, reason=reason))


@dataclass(frozen=True)
class _Case:
    """One attempt, and the relevant job of its name."""

    files: AttemptFiles
    status: JobStatus
    time_limit_s: float = field(kw_only=True)
    cancelled: bool = field(kw_only=True)

    @property
    def job(self) -> SlurmJob | None:
        """Return the one of several jobs of a name that began; before that, one that still may.

        An id is given again by a controller that was rolled back, which is why only jobs of this
        name are looked at.
        """
        jobs, claim = self.status.jobs, self.files.claim
        if claim:
            return _latest([job for job in jobs if job.id == claim.job_id])
        return _latest([job for job in jobs if not job.finished]) or _latest(jobs)

    def script_ended(self, code: int, duration_s: float) -> Stay | EndAttempt | AbandonAttempt:
        """Decide on an attempt whose script ended; Slurm may have ended its processes."""
        if code == 0:
            return self._end(None)
        if self.cancelled:
            return self._cancel()
        limit_s = self.time_limit_s
        if time_limit.ended_by_limit(code, duration_s=duration_s, time_limit_s=limit_s):
            return self._end(TrialState.TIMEOUT, f"it exceeded its time limit of {limit_s:g} s")
        if self.job and self.job.finished:
            return self._job_finished(self.job)
        if self.job:
            return self._stay()  # until Slurm gives a reason
        return self._forgotten(self._end(None))

    def begun(self, begun_by: float) -> Stay | EndAttempt | AbandonAttempt:
        """Decide on an attempt that a job began, and whose end is not recorded."""
        job = self.job
        if job is None:
            if self.cancelled and self.status.absent_since is not None:
                return self._cancel()
            vanished = "its job vanished from Slurm without a word"
            return self._forgotten(self._abandon(TrialState.LOST, vanished))
        if job.finished:
            return self._job_finished(job)
        if job.waits and not job.suspended and (self.status.queried_at or 0.0) > begun_by:
            return self._abandon(TrialState.PREEMPTED, "Slurm took its nodes and put it back")
        return self._stay()

    def not_begun(self, submitted_at: float) -> Stay | SubmitAgain | EndAttempt | AbandonAttempt:
        """Decide on an attempt whose folder no job has touched."""
        if self.job:
            return self._job_finished(self.job) if self.job.finished else self._stay()
        queried_at = self.status.queried_at
        if queried_at is None or queried_at - submitted_at < self.status.settle_s:
            return self._stay()
        if self.cancelled:
            return self._cancel()
        return SubmitAgain() if self.status.accounted else self._stay(ask_accounting=True)

    def _forgotten(
        self, otherwise: EndAttempt | AbandonAttempt
    ) -> Stay | EndAttempt | AbandonAttempt:
        """Decide on an attempt that began and whose job has left the queue.

        Its nodes may be down, or accounting may still report its end; if neither happens within a
        time limit, it is `otherwise`.
        """
        if self.status.failed_nodes:
            return self._abandon(*_NOT_ITS_FAULT["NODE_FAIL"])
        if not self.status.settled:
            return self._stay()
        return self._stay(ask_accounting=True) if self.status.awaits_accounting else otherwise

    def _job_finished(self, job: SlurmJob) -> Stay | EndAttempt | AbandonAttempt:
        if self.cancelled:
            return self._cancel()
        match job.state:
            case "NODE_FAIL" | "BOOT_FAIL" | "PREEMPTED":
                return self._abandon(*_NOT_ITS_FAULT[job.state])
            case "CANCELLED":
                if job.cancelled_by is None and not self.status.accounted:
                    return self._stay(ask_accounting=True) if self.status.settled else self._stay()
                who = "somebody else" if job.cancelled_by is None else f"user {job.cancelled_by}"
                reason = f"its job was cancelled by {who}, not by this campaign"
                return self._abandon(TrialState.CANCELLED, reason)
            case "TIMEOUT" | "DEADLINE" | "OUT_OF_MEMORY":
                return self._end(*_ENDED_BY_SLURM[job.state])
        return self._end(None) if self.files.end else self._without_a_word(job)

    def _without_a_word(self, job: SlurmJob) -> Stay | EndAttempt | AbandonAttempt:
        if not self.status.settled:
            return self._stay()
        if not self.files.claimed:
            return self._end(TrialState.CRASHED, FOLDER_NOT_SHARED)
        if job.state == "FAILED":
            return self._end(None)
        return self._abandon(TrialState.LOST, "its job ended and did not say how")

    def _stay(self, *, ask_accounting: bool = False) -> Stay:
        job, claimed = self.job, self.files.claimed
        if job and job.waits and (job.suspended or not claimed):
            return Stay(state=AttemptState.PENDING, reason=why_pending(job), job_id=job.id)
        if job is None and not claimed:
            return Stay(
                state=AttemptState.SUBMITTING,
                reason="being submitted to Slurm",
                job_id=self.files.job_id,
                ask_accounting=ask_accounting,
            )
        gone = job.completing if job else self.status.absent_since is not None
        state = AttemptState.COMPLETING if gone or self.files.end else AttemptState.RUNNING
        return Stay(
            state=state, job_id=self._job_id, host=self._host, ask_accounting=ask_accounting
        )

    def _cancel(self) -> EndAttempt:
        return self._end(TrialState.CANCELLED, "cancelled")

    def _abandon(self, status: TrialState, reason: str) -> EndAttempt | AbandonAttempt:
        if self.cancelled:
            return self._cancel()
        return AbandonAttempt(end=self._end(status, reason).end)

    def _end(self, status: TrialState | None, reason: str = "") -> EndAttempt:
        end, claim, job = self.files.end, self.files.claim, self.job
        began_at, duration_s = self.files.intended_at or self.status.now, 0.0
        if end:
            began_at, duration_s = end.began_at, end.duration_s
        elif job and job.started_at and job.ended_at:
            began_at, duration_s = job.started_at, max(0.0, job.ended_at - job.started_at)
        elif claim:  # until it was missed, or its limit: the nodes were not held for longer
            missed_at = self.status.absent_since or self.status.now
            began_at, duration_s = claim.at, min(max(0.0, missed_at - claim.at), self.time_limit_s)
        return EndAttempt(
            end=AttemptEnd(
                status=status,
                reason=reason,
                exit_code=end.exit_code if end else (job.exit_code if job else None),
                started_at=datetime.fromtimestamp(began_at, UTC),
                duration_s=duration_s,
                host=self._host,
                job_id=self._job_id,
                memory=claim.memory if claim else "",
            )
        )

    @property
    def _host(self) -> str:
        claim = self.files.claim
        return claim.nodes if claim else (self.job.nodes if self.job else "")

    @property
    def _job_id(self) -> str | None:
        claim = self.files.claim
        if claim:
            return claim.job_id
        return self.job.id if self.job else self.files.job_id


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
# The step existed, but none of its tasks was started; srun may still exit with 0.
_NEVER_LAUNCHED = re.compile(
    r"srun: error: (timeout waiting for task launch, started 0 of \d+ tasks)"
)
_ENDED_STEP = re.compile(
    r"^(?:srun|slurmstepd): error: \*\*\* (?:JOB|STEP) .* DUE TO (NODE FAILURE|PREEMPTION)",
    re.MULTILINE,
)
_STATES = {"NODE FAILURE": "NODE_FAIL", "PREEMPTION": "PREEMPTED"}
_TASKS_ENDED = re.compile(r"srun: error: \S+: tasks? ")
_SLURMS_WORDS = ("srun:", "slurmstepd:")
# Signs that the step existed: its daemon, a task that ended, or srun's message after waiting.
_THERE_WAS_A_STEP = re.compile(r"slurmstepd:|srun: error: \S+: tasks? |srun: Step created")


def failed_nodes(log_end: str) -> frozenset[str]:
    return frozenset(_NODE_FAILED.findall(log_end))


def why_ended(log_end: str) -> str:
    """Return the job state that slurmstepd's message implies, for a node failure or a preemption;
    else empty."""
    message = _ENDED_STEP.search(log_end)
    return _STATES[message.group(1)] if message else ""


def why_no_step(log_end: str) -> str:
    """Return Slurm's message if no step was created; else empty.

    Only the end of the log counts: srun may complain about an absent controller for a moment and
    then run a step that fails for its own reason.
    """
    last = _last_of_slurm(log_end)
    if any(_THERE_WAS_A_STEP.match(line) for line in last):
        return ""
    refusals = (match for line in last if (match := _NOT_CREATED.match(line)))
    newest = next(refusals, None)
    return (newest.group(1) or "Unable to contact slurm controller") if newest else ""


def why_never_launched(log_end: str) -> str:
    """Return Slurm's message if no task of the last step was started; else empty.

    If the trial continued after such a step, or some tasks ended, the failure is its own.
    """
    for line in _last_of_slurm(log_end):
        if _TASKS_ENDED.match(line):
            return ""
        if launched := _NEVER_LAUNCHED.match(line):
            return launched.group(1)
    return ""


def _last_of_slurm(log_end: str) -> list[str]:
    lines = [line for line in log_end.splitlines() if line.strip()]
    return list(takewhile(lambda line: line.startswith(_SLURMS_WORDS), reversed(lines)))


@dataclass(frozen=True, kw_only=True)
class NodeLoss:
    """What became of nodes while a trial ran on them; `status` is None if nothing did."""

    status: TrialState | None = None
    reason: str = ""
    failed_nodes: frozenset[str] = frozenset()


NO_LOSS = NodeLoss()


def decide_step(
    files: AttemptFiles,
    *,
    job_id: str,
    nodes: Sequence[str],
    loss: NodeLoss,
    log_end: str,
    time_limit_s: float,
    ended_at: float,
    cancelled: bool,
) -> Ended:
    """Return the decision about an attempt in pilot mode whose processes and steps are gone.

    Args:
        loss: of the attempt's nodes.
        log_end: the last lines of the attempt's log, with srun's messages.
        ended_at: when its processes were found gone (epoch).
    """
    gone = JobStatus(
        now=ended_at, queried_at=float("inf"), absent_since=ended_at, accounted=True, settle_s=0.0
    )
    decision = decide(files, gone, time_limit_s=time_limit_s, cancelled=cancelled)
    if isinstance(decision, EndAttempt):
        end = undecided = _on(decision.end, nodes, job_id)
    else:
        end = _on(_without_an_end(decision, ended_at), nodes, job_id)
        undecided = replace(end, status=None)
    blamed = blame_slurm(EndAttempt(end=undecided), log_end, cancelled=cancelled)
    if isinstance(blamed, EndAttempt) and (blamed.end.status or blamed.end.exit_code == 0):
        return blamed
    if loss.status is not None:
        return AbandonAttempt(end=replace(end, status=loss.status, reason=loss.reason))
    if isinstance(blamed, EndAttempt) and not isinstance(decision, EndAttempt):
        return AbandonAttempt(end=end)
    return blamed


def _without_an_end(decision: Decision, ended_at: float) -> AttemptEnd:
    if isinstance(decision, AbandonAttempt):
        reason = "its processes on the service's host were killed"
        return replace(decision.end, reason=reason)
    return AttemptEnd(
        status=TrialState.LOST,
        reason="it was started and never began",
        exit_code=None,
        started_at=datetime.fromtimestamp(ended_at, UTC),
        duration_s=0.0,
    )


def _on(end: AttemptEnd, nodes: Sequence[str], job_id: str) -> AttemptEnd:
    return replace(end, host=",".join(nodes), job_id=job_id)
