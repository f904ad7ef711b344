"""The thread that speaks with Slurm, for all campaigns of a process.

It submits in order, asks how all jobs stand with one call, ends jobs, and asks accounting about
those that the queue knows no more. Nobody else waits for Slurm: what it found is read from memory.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Self

from evaluators.cluster.profile import ClusterProfile, Polling
from evaluators.slurm.commands import (
    AccountingDisabled,
    Slurm,
    SlurmError,
    SlurmRefused,
    SlurmUnavailable,
)
from evaluators.slurm.doom import Doomed
from evaluators.slurm.job import Job
from evaluators.slurm.judgement import Sight
from evaluators.slurm.pace import Pace
from evaluators.slurm.submission import Outbox, Submission, send
from evaluators.slurm.watchlist import Sending, Sent, Watchlist

log = logging.getLogger(__name__)


class Controller:
    """One for each process and Slurm. Safe to use from several threads.

    Attributes:
        slurm: the commands that it calls; they count their calls.
        version: another number whenever anything that it tells may have changed.
    """

    def __init__(self, slurm: Slurm, *, polling: Polling) -> None:
        self.slurm = slurm
        self.version = 0
        self._pace = Pace(interval_s=polling.interval_s)
        self._wake = threading.Condition()
        self._watchlist = Watchlist()
        self._outbox = Outbox()
        self._doomed = Doomed()
        self._sought: dict[str, float] = {}
        self._wanted = self._hurry = False
        self._accounting = True
        self._trouble, self._silent_since = "", 0.0
        self._closed = False
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, profile: ClusterProfile) -> Self:
        return cls(Slurm.of(profile), polling=profile.polling)

    def submit(self, submission: Submission) -> None:
        """Queue it; what came of it is told by `sent`, and of its job by `sight`."""
        with self._wake:
            now = time.time()
            self._watchlist.add(submission.name, Sent(sending=Sending.QUEUED, at=now), since=now)
            self._outbox.add(submission)
            self._rouse()

    def follow(self, name: str, *, submitted_at: float, since: float | None = None) -> None:
        """Watch a name that was submitted before this object was there.

        Args:
            submitted_at: when last (epoch).
            since: when first, where it was more than once.
        """
        with self._wake:
            sent = Sent(sending=Sending.TRIED, at=submitted_at)
            self._watchlist.add(name, sent, since=submitted_at if since is None else since)
            self._wanted = self._hurry = True
            self._rouse()

    def recognise(self, name: str, job_id: str) -> None:
        """A job of this name is known to be ours by more than its time."""
        with self._wake:
            self._watchlist.recognise(name, job_id)

    def withdraw(self, name: str) -> bool:
        """Take it out of the queue; False where it is sent already, or being sent."""
        with self._wake:
            return self._outbox.withdraw(name)

    def cancel(self, name: str) -> None:
        """End every job of this name, now and for as long as one may still turn up."""
        with self._wake:
            if name not in self._doomed:
                since = self._watchlist.since(name)
                self._doomed.add(name, at=time.time(), since=since)
                self._wanted = self._hurry = True
                self._rouse()

    def watch(self, *, hurry: bool = False) -> None:
        """Somebody wants to know how the jobs stand; with `hurry` rather soon."""
        with self._wake:
            if not self._wanted or (hurry and not self._hurry) or self._thread is None:
                self._wanted = True
                self._hurry = self._hurry or hurry
                self._rouse()

    def look_up(self, name: str, *, since: float) -> None:
        """Ask accounting about this name's jobs, from that epoch on."""
        with self._wake:
            if name not in self._sought:
                self._sought[name] = since
                self._rouse()

    def forget(self, name: str) -> None:
        """Nobody asks about this name again; jobs that are being ended still are."""
        with self._wake:
            self._watchlist.remove(name)
            self._sought.pop(name, None)

    def sent(self, name: str) -> Sent:
        """How the submission of a watched name stands."""
        with self._wake:
            return self._watchlist.sent(name)

    def sight(self, name: str) -> Sight:
        """What Slurm says of a watched name."""
        with self._wake:
            return self._watchlist.sight(name, now=time.time(), accounting=self._accounting)

    def failed_nodes(self, name: str) -> frozenset[str]:
        """Of a watched job that a node's failure ended: its nodes that were down then."""
        with self._wake:
            return self._watchlist.failed_nodes(name)

    @property
    def trouble(self) -> str:
        """`Slurm does not answer since 14:02 (…)`; empty while it does."""
        with self._wake:
            if not self._trouble:
                return ""
            since = time.strftime("%H:%M", time.localtime(self._silent_since))
            return f"Slurm does not answer since {since} ({self._trouble})"

    @property
    def full(self) -> str:
        """What keeps jobs from being submitted for the moment; empty where nothing does."""
        with self._wake:
            return self._outbox.full

    def close(self) -> None:
        """End the thread; jobs run on, but for those that are to be ended.

        A command that is under way is waited for. Whoever asks for something later starts it anew.
        """
        with self._wake:
            thread, self._thread = self._thread, None
            self._closed = True
            self._wake.notify_all()
        if thread:
            thread.join()
        self._closed = False

    def _rouse(self) -> None:
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
        if self._doomed and not self._trouble:
            self._do(self._ask_status)  # and end them

    def _do(self, work: Callable[[], None]) -> None:
        """An error that nobody foresaw is said, and ends neither the thread nor the campaign."""
        try:
            work()
        except Exception as error:
            log.exception("an unexpected error while speaking with Slurm")
            self._fell_silent(f"unexpected: {error!r}")
        self.version += 1

    def _next(self) -> tuple[float, Callable[[], None]]:
        """When to do what next; nothing is sent to a Slurm that does not answer.

        Of what is due now the questions come first: they never crowd out the rest.
        """
        status_due = self._pace.status_due(hurry=self._hurry and not self._trouble)
        if self._trouble:
            return status_due, self._ask_status
        due = [(float("inf"), self._ask_status)]
        if self._sought:  # before the status, which somebody may want without a pause
            due.append((self._pace.accounting_due(), self._ask_accounting))
        if self._wanted or self._doomed:
            due.append((status_due, self._ask_status))
        if self._outbox:
            due.append((self._outbox.due, self._send_next))
        now = time.monotonic()
        return min(due, key=lambda pair: max(pair[0], now))

    def _ask_status(self) -> None:
        with self._wake:
            self._wanted = self._hurry = False
            self._pace.asked(now=time.monotonic())
        asked_at = time.time()
        try:
            jobs = self.slurm.squeue()
        except SlurmError as error:
            self._fell_silent(str(error), asking=True)
            return
        self._blame(jobs)
        with self._wake:
            self._trouble = ""
            self._pace.answered(now=time.monotonic())
            self._watchlist.take_in(jobs, asked_at=asked_at)
        self._end_doomed(jobs)

    def _blame(self, jobs: Sequence[Job]) -> None:
        """Find out which nodes failed before anybody reads that some did."""
        with self._wake:
            unblamed = self._watchlist.unblamed(jobs)
        if not unblamed:
            return
        try:
            down = self.slurm.down_nodes()
            found = {name: down & set(self.slurm.nodes(text)) for name, text in unblamed.items()}
        except SlurmError:
            return
        with self._wake:
            for name, nodes in found.items():
                self._watchlist.blame(name, nodes)

    def _end_doomed(self, jobs: Sequence[Job]) -> None:
        now = time.time()
        with self._wake:
            job_ids = self._doomed.due(
                jobs,
                ours=self._watchlist.ours(jobs),
                unsettled=self._watchlist.unsettled(now=now),
                now=now,
            )
        if not job_ids:
            return
        try:
            self.slurm.scancel(job_ids)
        except SlurmError as error:
            self._fell_silent(str(error))
            return
        with self._wake:
            self._doomed.told(job_ids, now=time.time())
            self._wanted = self._hurry = True

    def _send_next(self) -> None:
        with self._wake:
            if not self._outbox:
                return
            submission = self._outbox.take()
            under_way = Sent(sending=Sending.UNDER_WAY, at=time.time())
            self._watchlist.note_sent(submission.name, under_way)
        sent = send(submission, self.slurm)
        with self._wake:
            self._watchlist.note_sent(submission.name, sent)
            if sent.sending is Sending.QUEUED:
                self._outbox.put_back(submission, sent.error)
            else:
                self._outbox.full = ""
                self._wanted = True
        if isinstance(sent.error, SlurmUnavailable):
            self._fell_silent(str(sent.error))

    def _ask_accounting(self) -> None:
        with self._wake:
            sought = dict(self._sought)
            self._pace.asked(now=time.monotonic())
        jobs: list[Job] = []
        try:
            jobs = self.slurm.sacct(sought, since=min(sought.values()))
        except AccountingDisabled:
            self._accounting = False
        except SlurmUnavailable as error:
            log.warning("accounting does not answer: %s", error)
            with self._wake:
                self._pace.accounting_unanswered(now=time.monotonic())
            return
        except SlurmRefused as error:
            log.warning("accounting gives no answer: %s", error)
        with self._wake:
            self._sought = {k: v for k, v in self._sought.items() if k not in sought}
            self._watchlist.take_in_accounting(sought, jobs)

    def _fell_silent(self, message: str, *, asking: bool = False) -> None:
        """Nothing is sent again until a status call is answered; `asking`: this one was not."""
        with self._wake:
            if not asking:
                self._pace.asked(now=time.monotonic())
            self._silent_since = self._silent_since if self._trouble else time.time()
            self._trouble = message
            self._pace.unanswered(now=time.monotonic())
