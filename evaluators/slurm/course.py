"""One trial's way through its attempts, to one outcome."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from evaluators.cluster.profile import ClusterProfile
from evaluators.program import Ended, Program
from evaluators.slurm.attempt import CANCELLED, Attempt
from evaluators.slurm.controller import Controller, Submission
from evaluators.slurm.evidence import (
    Evidence,
    over_duration_s,
    read_evidence,
    write_over,
    write_whole,
)
from evaluators.slurm.judgement import LookUp, Retry, Sight, SubmitAgain, Verdict, judge
from evaluators.slurm.ledger import excluded, note_failures
from evaluators.slurm.script import BODY_SCRIPT, JOB_SCRIPT, body_script, job_script, launcher_of
from evaluators.slurm.step_errors import step_error
from evaluators.slurm.watchlist import Sending, Sent
from evaluators.trainer.request_file import log_tail, write_result
from evaluators.trial import Standing, TrialOutcome, TrialRequest, TrialStatus
from search_spaces.errors import InvalidInput

log = logging.getLogger(__name__)

LOOK_BACK_S = 3600.0
"""How long before its submission accounting is asked about a job: clocks differ."""
GLANCE_S = 0.02
"""Most logs are read in less: then the nodes need not wait for another look."""
_READING = Standing(phase="running", reason="reading what it left")


@dataclass(frozen=True, kw_only=True)
class Site:
    """What every trial of a backend needs."""

    profile: ClusterProfile
    program: Program
    controller: Controller
    readers: Executor


def attempts_of(request: TrialRequest) -> list[Attempt]:
    """Those that have a folder, first to last."""
    numbers = sorted(
        int(number)
        for folder in request.directory.glob("attempt-*")
        if (number := folder.name.removeprefix("attempt-")).isdigit()
    )
    return [Attempt(request=request, number=number) for number in numbers]


class Course:
    """One trial. All that it keeps can be had again from the folders and from Slurm."""

    def __init__(self, request: TrialRequest, site: Site) -> None:
        self.request = request
        self._site = site
        self._cancelled = (request.directory / CANCELLED).exists()
        self._evidence = Evidence()
        self._read_for: tuple[object, bool] | None = None
        self._reading: Future[TrialOutcome] | None = None
        self._told: tuple[int, Standing] | None = None
        self._begun_by: float | None = None
        self._unseen = 0
        self._attempt = Attempt(request=request, number=1)

    @classmethod
    def found(cls, request: TrialRequest, site: Site) -> Course | None:
        """One that was begun before, taken up again; None where nothing was ever submitted."""
        course = cls(request, site)
        attempts = attempts_of(request)
        if not attempts:
            return None
        course._attempt = attempts[-1]
        evidence = read_evidence(course._attempt.folder)
        if evidence.over:
            course._begin(course._attempt.number + 1)
        elif evidence.intended_at is not None or evidence.claimed:
            course._follow(evidence)
        elif len(attempts) > 1:
            course._begin(course._attempt.number)
        else:
            return None
        return course

    @classmethod
    def begun(cls, request: TrialRequest, site: Site) -> Course:
        """A new one, whose first attempt is submitted."""
        course = cls(request, site)
        course._begin(1)
        return course

    @property
    def attempt(self) -> Attempt:
        return self._attempt

    def cancel(self) -> None:
        """A marker first: whatever happens from here on, the trial is to be ended."""
        if self._reading or self._cancelled:
            return
        try:
            self.request.directory.mkdir(parents=True, exist_ok=True)
            (self.request.directory / CANCELLED).touch()
        except OSError:
            log.warning("a cancelled trial could not be marked as such", exc_info=True)
        self._cancelled, self._told = True, None
        self._site.controller.cancel(self._attempt.name)

    def advance(self, *, mailed: bool) -> TrialOutcome | Standing:
        """How it stands; `mailed`: the attempt's end lies in the mailbox."""
        if self._reading is None:
            version = self._site.controller.version
            if self._told and self._told[0] == version and not mailed:
                return self._told[1]
            standing = self._look(mailed=mailed)
            if self._read_for is not None and self._read_for[0]:
                self._told = (version, standing)  # nothing but the controller can change it
            if self._reading is None:
                return standing
            wait([self._reading], timeout=GLANCE_S)
        return self._reading.result() if self._reading.done() else _READING

    def _look(self, *, mailed: bool) -> Standing:
        controller, name = self._site.controller, self._attempt.name
        sent = controller.sent(name)
        if sent.sending is not Sending.TRIED:
            return self._unsent(sent)
        sight = controller.sight(name)
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

    def _read(self, sight: Sight, *, mailed: bool) -> None:
        """Look into the folder only when something may have changed there."""
        living = tuple((job.id, job.state) for job in sight.jobs if not job.finished)
        unsaid = self._evidence.end is None and (mailed or not living)
        if unsaid or self._read_for != (living, mailed):
            self._take_in(read_evidence(self._attempt.folder))
            self._read_for = (living, mailed)

    def _take_in(self, evidence: Evidence) -> None:
        self._evidence = evidence
        if evidence.claimed and self._begun_by is None:
            self._begun_by = time.time()
        for job_id in (evidence.job_id, evidence.claim and evidence.claim.job_id):
            if job_id:
                self._site.controller.recognise(self._attempt.name, job_id)

    def _act(self, verdict: Verdict) -> Standing:
        controller, name = self._site.controller, self._attempt.name
        if isinstance(verdict, Ended):
            if verdict.status is None and verdict.exit_code and self._no_step():
                reason = "srun got no answer from Slurm, and started nothing"
                return self._retry(replace(verdict, status=TrialStatus.LOST, reason=reason))
            self._close(verdict)
            return _READING
        if isinstance(verdict, Retry):
            return self._retry(verdict.ended)
        if isinstance(verdict, SubmitAgain):
            return self._submit_again()
        if isinstance(verdict, LookUp):
            since = self._evidence.intended_at or time.time()
            controller.look_up(name, since=since - LOOK_BACK_S)
            verdict = verdict.standing
        if self._cancelled or self._evidence.end:
            controller.watch(hurry=True)
        trouble = controller.trouble
        if verdict.phase == "waiting" and trouble:
            return replace(verdict, reason=trouble)
        return verdict

    def _no_step(self) -> bool:
        """Whether Slurm, and not the trial, kept it from starting: a controller was away."""
        said = step_error(log_tail(self._attempt.folder))
        return said is not None and bool(said.not_created)

    def _submit_again(self) -> Standing:
        """Its job was never there, or left no trace: more than a few such jobs are no accident."""
        name = self._attempt.name
        self._unseen += self._evidence.job_id is not None
        if self._unseen >= self._site.profile.retries.attempts:
            self._settle(TrialStatus.LOST, "Slurm took its job several times and then knew none")
            return _READING
        log.warning("%s is not in the queue: it is submitted again", name)
        self._submit()
        return Standing(phase="waiting", reason="being submitted to Slurm again")

    def _unsent(self, sent: Sent) -> Standing:
        controller, name = self._site.controller, self._attempt.name
        if sent.sending is Sending.REFUSED:
            self._settle(TrialStatus.REFUSED, f"sbatch refused it: {sent.error}")
        elif sent.sending is Sending.FAILED:
            self._settle(*why_unsent(sent.error))
        elif self._cancelled and controller.withdraw(name):
            self._settle(TrialStatus.CANCELLED, "cancelled")
        reason = controller.trouble or controller.full or "being submitted to Slurm"
        return Standing(phase="waiting", reason=reason)

    def _begin(self, number: int) -> None:
        self._attempt = Attempt(request=self.request, number=number)
        self._evidence, self._begun_by = Evidence(), None
        self._read_for, self._told = None, None
        self._submit()

    def _submit(self) -> None:
        attempt = self._attempt
        self._site.controller.submit(
            Submission(
                name=attempt.name, folder=attempt.folder, prepare=lambda: self._prepare(attempt)
            )
        )
        if self._cancelled:
            self._site.controller.cancel(attempt.name)

    def _follow(self, evidence: Evidence) -> None:
        self._site.controller.follow(
            self._attempt.name,
            submitted_at=evidence.intended_at or 0.0,
            since=evidence.first_intended_at,
        )
        self._take_in(evidence)
        if self._cancelled:
            self._site.controller.cancel(self._attempt.name)

    def _prepare(self, attempt: Attempt) -> None:
        """Write what is run, just before it is submitted; in the controller's thread."""
        profile, program = self._site.profile, self._site.program
        avoided = excluded(attempt.mailbox.parent, failures=profile.retries.node_failures)
        launcher = launcher_of(profile, self.request)
        files = {
            **program.files(self.request, attempt.folder),
            BODY_SCRIPT: body_script(attempt, profile, program, launcher),
            JOB_SCRIPT: job_script(attempt, profile, exclude=avoided),
        }
        attempt.mailbox.mkdir(parents=True, exist_ok=True)
        attempt.folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():  # a job of an earlier try may be reading them
            write_whole(attempt.folder / name, text)

    def _retry(self, ended: Ended) -> Standing:
        """Another attempt, unless there were enough."""
        controller, attempt = self._site.controller, self._attempt
        trials = attempt.mailbox.parent
        if ended.status is TrialStatus.NODE_FAIL:
            nodes = controller.failed_nodes(attempt.name)
            note_failures(trials, name=attempt.name, nodes=nodes)
        most = self._site.profile.retries.attempts
        controller.cancel(attempt.name)  # a job that Slurm put back, or a second one
        if attempt.number >= most:
            self._close(replace(ended, reason=f"{ended.reason}, in each of {most} attempts"))
            return _READING
        log.warning("%s: %s; it is started again", attempt.name, ended.reason)
        self._give_up(ended)
        controller.forget(attempt.name)
        self._begin(attempt.number + 1)
        return Standing(phase="waiting", reason=f"to be started again: {ended.reason}")

    def _give_up(self, ended: Ended) -> None:
        try:
            write_over(
                self._attempt.folder,
                status=str(ended.status),
                reason=ended.reason,
                duration_s=ended.duration_s,
            )
        except OSError:
            log.warning("an attempt could not be marked as over", exc_info=True)

    def _close(self, ended: Ended) -> None:
        """Read what it left in another thread: a log may be gigabytes long."""
        folder, program = self._attempt.folder, self._site.program
        self._end_with(lambda: program.outcome(self.request, folder, ended))

    def _settle(self, status: TrialStatus, error: str) -> None:
        """An outcome without a job."""
        now, log_path = datetime.now(UTC), self._attempt.log
        found = TrialOutcome(
            status=status,
            started_at=now,
            duration_s=0.0,
            simulated=False,
            error=error,
            log_path=str(log_path) if log_path.exists() else None,
        )
        self._end_with(lambda: found)

    def _end_with(self, outcome: Callable[[], TrialOutcome]) -> None:
        """What the attempts before this one held of nodes counts, too."""
        attempt = self._attempt
        earlier = [
            each.folder for each in attempts_of(self.request) if each.number < attempt.number
        ]

        def whole() -> TrialOutcome:
            found = outcome()
            return replace(found, duration_s=found.duration_s + sum(map(over_duration_s, earlier)))

        self._site.controller.forget(attempt.name)
        self._reading = self._site.readers.submit(
            write_outcome, self.request, whole, attempt.mailbox / attempt.name
        )


def write_outcome(
    request: TrialRequest, outcome: Callable[[], TrialOutcome], mail: Path
) -> TrialOutcome:
    """The outcome, in its file too; only then is the end's notice taken out of the mailbox."""
    try:
        found = outcome()
    except Exception as error:
        log.exception("what a trial left could not be read")
        found = TrialOutcome(
            status=TrialStatus.CRASHED,
            started_at=datetime.now(UTC),
            duration_s=0.0,
            simulated=False,
            error=f"what it left could not be read: {type(error).__name__}: {error}",
        )
    try:
        request.directory.mkdir(parents=True, exist_ok=True)
        write_result(request.directory, found)
        mail.unlink(missing_ok=True)
    except OSError:
        log.warning("a trial's result could not be written", exc_info=True)
    return found


def why_unsent(error: Exception | None) -> tuple[TrialStatus, str]:
    if isinstance(error, InvalidInput):
        return TrialStatus.REFUSED, str(error)
    if isinstance(error, OSError):
        return TrialStatus.CRASHED, f"no folder for it: {error.strerror or error}"
    return TrialStatus.REFUSED, f"no job can be written for it: {error}"
