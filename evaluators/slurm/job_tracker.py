"""Submits jobs and follows them, in one thread for all campaigns of a process.

It submits in order, polls all jobs with one call, cancels jobs, and queries accounting for jobs
that left the queue. No other thread waits for Slurm: results are read from memory.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from autotune.files import is_file_system_failure
from evaluators.cluster.profile import ClusterProfile, Polling
from evaluators.slurm.attempt_files import write_intent, write_job
from evaluators.slurm.batch_script import JOB_SCRIPT
from evaluators.slurm.commands import (
    AccountingDisabled,
    QueueFull,
    Slurm,
    SlurmError,
    SlurmJob,
    SlurmRefused,
    SlurmUnavailable,
)
from evaluators.slurm.job_decision import JobStatus
from evaluators.slurm.job_records import (
    JobRecords,
    LookUp,
    SubmitState,
    SubmitStatus,
    steady_time,
    steady_time_of,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A job to be submitted.

    Attributes:
        prepare: writes `job.sh` into `folder` just before submission. The submission fails with
            its OSError or ValueError; if the disk is full, it is retried later.
    """

    name: str
    folder: Path
    prepare: Callable[[], None]


class JobTracker:
    """Follows the jobs of one Slurm; one per process. Thread-safe.

    Attributes:
        slurm: the commands, which count their calls.
        version: changes whenever anything that it reports may have changed.
    """

    def __init__(self, slurm: Slurm, *, polling: Polling) -> None:
        self.slurm = slurm
        self.version = 0
        self._schedule = PollSchedule(interval_s=polling.interval_s)
        self._wake = threading.Condition()
        self._records = JobRecords(
            settle_s=polling.settle_s, accounting_limit_s=polling.accounting_limit_s
        )
        self._queue: deque[Submission] = deque()
        self._full_pause_s = polling.full_queue_pause_s
        self._full, self._submit_due = "", 0.0
        self._left_over: dict[str, str] = {}
        self._steps_due = 0.0
        self._wanted = self._hurry = False
        self._accounting = True
        self._trouble, self._silent_since = "", 0.0
        self._closed = False
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, profile: ClusterProfile) -> Self:
        return cls(Slurm.of(profile), polling=profile.polling)

    def submit(self, submission: Submission) -> None:
        """Queue a submission; `submit_status` reports it, and `status` its job."""
        with self._wake:
            queued = SubmitStatus(state=SubmitState.QUEUED, at=steady_time())
            self._records.add(submission.name, queued, since=time.time())
            self._queue.append(submission)
            self._wake_up()

    def follow(self, name: str, *, submitted_at: float, since: float | None = None) -> None:
        """Track a name that an earlier object submitted.

        Args:
            submitted_at: last submission (epoch by this machine's clock).
            since: first submission, if there were several.
        """
        with self._wake:
            at = steady_time_of(submitted_at)
            submitted = SubmitStatus(state=SubmitState.TRIED, at=at)
            self._records.add(name, submitted, since=submitted_at if since is None else since)
            self._wanted = self._hurry = True
            self._wake_up()

    def recognise(self, name: str, job_id: str) -> None:
        with self._wake:
            self._records.recognise(name, job_id)

    def withdraw(self, name: str) -> bool:
        """Remove it from the queue of submissions; False if it was sent or is being sent."""
        with self._wake:
            waiting = len(self._queue)
            self._queue = deque(job for job in self._queue if job.name != name)
            return len(self._queue) < waiting

    def cancel(self, name: str) -> None:
        """Cancel every job of this name, now and for as long as one may still appear."""
        with self._wake:
            if self._records.cancel(name, at=steady_time()):
                self._wanted = self._hurry = True
                self._wake_up()

    def watch(self, *, hurry: bool = False) -> None:
        """Poll when a call is due; with `hurry`, sooner."""
        with self._wake:
            if not self._wanted or (hurry and not self._hurry) or self._thread is None:
                self._wanted = True
                self._hurry = self._hurry or hurry
                self._wake_up()

    def look_up(self, name: str, *, since: float, nodes: str = "") -> None:
        """Query accounting about this name's jobs, and whether its nodes are down.

        Args:
            since: of the jobs (epoch).
            nodes: of the job, as Slurm writes them; empty if it had none.
        """
        with self._wake:
            recent = steady_time() - self._schedule.interval_s
            wanted = LookUp(since=since, nodes=nodes)
            if self._records.ask_about(name, wanted, unless_since=recent):
                self._wake_up()

    def forget(self, name: str) -> None:
        with self._wake:
            self._records.remove(name)

    def end_steps(self, name: str, *, job_id: str) -> None:
        with self._wake:
            self._left_over[name] = job_id
            self._wake_up()

    def steps_gone(self, name: str) -> bool:
        with self._wake:
            return name not in self._left_over

    def submit_status(self, name: str) -> SubmitStatus:
        with self._wake:
            return self._records.submit_status(name)

    def status(self, name: str) -> JobStatus:
        with self._wake:
            return self._records.status(name, now=steady_time(), accounting=self._accounting)

    def failed_nodes(self, name: str) -> frozenset[str]:
        with self._wake:
            return self._records.failed_nodes(name)

    @property
    def trouble(self) -> str:
        """Return `Slurm does not answer since 14:02 (…)`; empty while it does."""
        with self._wake:
            if not self._trouble:
                return ""
            began_at = time.time() - (steady_time() - self._silent_since)
            since = time.strftime("%H:%M", time.localtime(began_at))
            return f"Slurm does not answer since {since} ({self._trouble})"

    @property
    def long_trouble(self) -> str:
        with self._wake:
            silent_s = steady_time() - self._silent_since
            return self.trouble if silent_s > LONG_SILENCE * self._schedule.interval_s else ""

    @property
    def full(self) -> str:
        with self._wake:
            return self._full

    def close(self) -> None:
        """End the thread after its current command, and send pending cancellations; other jobs keep
        running. A later request starts the thread again.
        """
        with self._wake:
            thread, self._thread = self._thread, None
            self._closed = True
            self._wake.notify_all()
        if thread:
            thread.join()
        self._closed = False

    def _wake_up(self) -> None:
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._run, name="slurm", daemon=True)
            self._thread.start()
        self._wake.notify_all()

    def _run(self) -> None:
        while not self._closed:
            with self._wake:
                due, work = self._next()
                wait_s = due - time.monotonic()
                if wait_s > 0 and not self._closed:
                    self._wake.wait(min(wait_s, threading.TIMEOUT_MAX))
                    continue
            self._do(work)
        if self._records.cancels and not self._trouble:
            self._do(self._ask_status)  # and end them

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            log.exception("an unexpected error while calling Slurm")
            self._fell_silent(f"unexpected: {error!r}")
        self.version += 1

    def _next(self) -> tuple[float, Callable[[], None]]:
        """Return when to do what next. While Slurm does not answer, only status calls are sent.

        Of several that are due, queries come first; their intervals leave time for the others.
        """
        status_due = self._schedule.status_due(hurry=self._hurry and not self._trouble)
        if self._trouble:
            return status_due, self._ask_status
        due = [(float("inf"), self._ask_status)]
        if self._records.look_ups():  # before the status, which may be wanted all the time
            due.append((self._schedule.accounting_due(), self._ask_accounting))
        if self._wanted or self._records.cancels:
            due.append((status_due, self._ask_status))
        if self._left_over:
            due.append((self._steps_due, self._end_left_over))
        if self._queue:
            due.append((self._submit_due, self._submit_next))
        now = time.monotonic()
        return min(due, key=lambda pair: max(pair[0], now))

    def _ask_status(self) -> None:
        with self._wake:
            self._wanted = self._hurry = False
            self._schedule.began(now=time.monotonic())
        queried_at = steady_time()
        try:
            jobs = self.slurm.squeue()
        except SlurmError as error:
            self._fell_silent(str(error), asking=True)
            return
        self._find_failed_nodes(jobs)
        with self._wake:
            self._trouble = ""
            self._schedule.answered(now=time.monotonic())
            self._records.take_in(jobs, queried_at=queried_at)
        self._cancel_due(jobs)

    def _find_failed_nodes(self, jobs: Sequence[SlurmJob]) -> None:
        with self._wake:
            failures = self._records.node_failures(jobs)
        for name, nodes in self._down_among(failures).items():
            with self._wake:
                self._records.note_failed_nodes(name, nodes)

    def _down_among(self, nodes_of: Mapping[str, str]) -> dict[str, frozenset[str]]:
        if not nodes_of:
            return {}
        try:
            down = self.slurm.down_nodes()
            return {name: down & set(self.slurm.nodes(text)) for name, text in nodes_of.items()}
        except SlurmError:
            return {}

    def _cancel_due(self, jobs: Sequence[SlurmJob]) -> None:
        with self._wake:
            job_ids = self._records.to_cancel(jobs, now=steady_time())
        if not job_ids:
            return
        try:
            self.slurm.scancel(job_ids)
        except SlurmError as error:
            self._fell_silent(str(error))
            return
        with self._wake:
            self._records.note_signalled(job_ids, now=steady_time())
            self._wanted = self._hurry = True

    def _submit_next(self) -> None:
        with self._wake:
            if not self._queue:
                return
            submission = self._queue.popleft()
            under_way = SubmitStatus(state=SubmitState.UNDER_WAY, at=steady_time())
            self._records.note_submitted(submission.name, under_way)
        submitted = submit(submission, self.slurm)
        with self._wake:
            self._records.note_submitted(submission.name, submitted)
            if submitted.state is SubmitState.QUEUED:
                self._put_back(submission, submitted.error)
            else:
                self._full, self._wanted = "", True
        if isinstance(submitted.error, SlurmUnavailable):
            self._fell_silent(str(submitted.error))

    def _put_back(self, submission: Submission, error: Exception | None) -> None:
        self._queue.appendleft(submission)
        self._submit_due = time.monotonic() + self._full_pause_s
        if isinstance(error, OSError):
            self._full = f"its folder cannot be written: {error.strerror}"
        else:
            self._full = f"no more jobs may be in the queue now ({error})"

    def _ask_accounting(self) -> None:
        with self._wake:
            names = self._records.look_ups()
            self._schedule.began(now=time.monotonic())
        if not names:  # they were forgotten meanwhile
            return
        jobs: list[SlurmJob] = []
        down = self._down_among({name: each.nodes for name, each in names.items() if each.nodes})
        with self._wake:
            for name, nodes in down.items():
                if nodes:
                    self._records.note_failed_nodes(name, nodes)
        try:
            if self._accounting:
                jobs = self.slurm.sacct(names, since=min(each.since for each in names.values()))
        except AccountingDisabled:
            self._accounting = False
        except SlurmUnavailable as error:
            log.warning("accounting does not answer: %s", error)
            with self._wake:
                self._schedule.accounting_unanswered(now=time.monotonic())
            return
        except SlurmRefused as error:
            log.warning("accounting gives no answer: %s", error)
        with self._wake:
            self._records.take_in_accounting(names, jobs, now=steady_time())

    def _end_left_over(self) -> None:
        with self._wake:
            dead = dict(self._left_over)
        began = time.monotonic()
        left: set[str] = set()
        try:
            for job_id in set(dead.values()):
                steps = self.slurm.steps(job_id)
                left |= {name for _, name in steps}
                if ours := [step for step, name in steps if dead.get(name) == job_id]:
                    self.slurm.scancel(ours)
        except SlurmError as error:
            self._fell_silent(str(error))
            return
        with self._wake:
            took_s = time.monotonic() - began
            self._steps_due = time.monotonic() + max(STEPS_PAUSE_S, took_s)
            for name in dead.keys() - left:
                self._left_over.pop(name, None)

    def _fell_silent(self, message: str, *, asking: bool = False) -> None:
        """Send nothing until a status call is answered.

        Args:
            asking: whether it was a status call that failed.
        """
        with self._wake:
            if not asking:
                self._schedule.began(now=time.monotonic())
            if not self._trouble:
                self._silent_since = steady_time()
            self._trouble = message
            self._schedule.unanswered(now=time.monotonic())


STEPS_PAUSE_S = 1.0
"""Between two listings of steps, so that they and the status calls stay below two a second."""
LONG_SILENCE = 2
"""Intervals between status calls after which running trials report Slurm's silence, too."""
SHORTEST_S = 0.5
"""Minimum seconds between two queries, whatever the settings say."""
PAUSE_FACTOR = 5
"""The pause after a slow call, as a multiple of the call's duration …"""
LONGEST_PAUSE_S = 60.0
"""… up to this many seconds, unless the interval itself is longer."""
HURRY_FACTOR = 5
"""The interval is divided by this while somebody waits for an answer."""


@dataclass(kw_only=True)
class PollSchedule:
    """When to poll next. Times are seconds of a monotonic clock.

    Attributes:
        interval_s: between two status calls of a Slurm that answers at once.
    """

    interval_s: float
    _began_at: float = float("-inf")
    _pause_s: float = 0.0
    _accounting_pause_s: float = 0.0

    def began(self, *, now: float) -> None:
        self._began_at = now

    def answered(self, *, now: float) -> None:
        took = now - self._began_at
        self._pause_s = max(self.interval_s, min(PAUSE_FACTOR * took, LONGEST_PAUSE_S)) + took
        self._accounting_pause_s = 0.0

    def unanswered(self, *, now: float) -> None:
        took = now - self._began_at
        self._pause_s = max(self.interval_s, min(took, LONGEST_PAUSE_S)) + took

    def accounting_unanswered(self, *, now: float) -> None:
        took = now - self._began_at
        self._accounting_pause_s = max(PAUSE_FACTOR * self.interval_s, took) + took

    def status_due(self, *, hurry: bool) -> float:
        pause_s = self._pause_s / HURRY_FACTOR if hurry else self._pause_s
        return self._began_at + max(pause_s, SHORTEST_S)

    def accounting_due(self) -> float:
        return self._began_at + max(self._accounting_pause_s, SHORTEST_S)


def submit(submission: Submission, slurm: Slurm) -> SubmitStatus:
    """Prepare the job and call sbatch; it stays queued if Slurm accepts no more jobs at the moment,
    or if the disk is full."""
    try:
        submission.prepare()
        write_intent(submission.folder, name=submission.name, at=time.time())
    except (OSError, ValueError) as error:
        # On a full disk the result of a failed trial could not be written either.
        full = is_file_system_failure(error)
        return _status(SubmitState.QUEUED if full else SubmitState.FAILED, error)
    try:
        job_id = slurm.sbatch(submission.folder / JOB_SCRIPT)
    except SlurmUnavailable as error:
        return _status(SubmitState.TRIED, error)  # the job may exist: it is looked up by name
    except QueueFull as error:
        return _status(SubmitState.QUEUED, error)
    except SlurmRefused as error:
        return _status(SubmitState.REFUSED, error)
    status = SubmitStatus(state=SubmitState.TRIED, at=steady_time(), job_id=job_id)
    try:
        write_job(submission.folder, job_id=job_id)
    except OSError:
        log.warning("the id of a job could not be written", exc_info=True)
    return status


def _status(state: SubmitState, error: Exception) -> SubmitStatus:
    return SubmitStatus(state=state, at=steady_time(), error=error)
