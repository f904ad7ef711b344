"""One trial on Ray while it is under way, and how it comes to its one outcome."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from autotune.files import write_whole
from autotune.schemas import TrialState
from evaluators.attempt.abandonment import abandoned_status
from evaluators.attempt.attempt import CANCELLED, Attempt, attempts_of
from evaluators.attempt.attempt_state import AttemptState, transition
from evaluators.attempt.trial_result import abandon, without_run, write_outcome
from evaluators.cluster.profile import ClusterProfile
from evaluators.program import AttemptEnd, Program
from evaluators.ray.work import keeper_name
from evaluators.trial import TrialOutcome, TrialProgress, TrialRequest

KEEPER = "keeper.json"
"""In an attempt's folder: the actor that was, or was to be, given it, and whether it has it."""

SUBMITTING = TrialProgress(phase="waiting", reason="being submitted to Ray")
KEEPER_LOST = "Ray's head, or the actor there that keeps trials, has died"

_NOT_ITS_FAULT = {"node": TrialState.NODE_FAIL, "lost": TrialState.LOST}
_ENDS = {"memory": TrialState.OOM, "cancelled": TrialState.CANCELLED}


@dataclass(kw_only=True, eq=False)
class RayTrial:
    """Changed by the backend's thread alone, but for `cancelled`.

    Attributes:
        state: of the attempt.
        answer: what is told when somebody asks.
        keeper: the actor that has the attempt, or is to.
        taken: whether it is known to have taken it.
        asked: whether it was asked for it since this object was made.
        logged: bytes of the log that are here.
        began_at: of the attempt, as far as is known here (epoch); `began` is the same by the clock
            that nobody sets.
        reading: what it left, once it is known how it ended.
    """

    request: TrialRequest
    attempt: Attempt
    keeper: str
    state: AttemptState = AttemptState.NEW
    answer: TrialOutcome | TrialProgress = SUBMITTING
    cancelled: bool = False
    taken: bool = False
    asked: bool = False
    logged: int = 0
    began_at: float = field(default_factory=time.time)
    began: float = field(default_factory=time.monotonic)
    reading: Future[TrialOutcome] | None = None

    @classmethod
    def of(cls, request: TrialRequest) -> RayTrial:
        """Return it with what its folder says about earlier attempts."""
        attempts = attempts_of(request)
        attempt = attempts[-1] if attempts else Attempt(request=request, number=1)
        trial = cls(
            request=request,
            attempt=attempt,
            keeper=keeper_name(request.directory.parent),
            cancelled=(request.directory / CANCELLED).exists(),
        )
        if attempts and abandoned_status(attempt.folder) is not None:
            trial.attempt = Attempt(request=request, number=attempt.number + 1)
        trial._read_keeper()
        return trial

    def become(self, state: AttemptState) -> None:
        self.state = transition(self.state, state)

    def note(self, *, taken: bool) -> None:
        """Write down who is given the attempt; raises OSError."""
        self.attempt.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"keeper": self.keeper, "taken": taken})
        write_whole(self.attempt.folder / KEEPER, text)
        self.taken = taken

    def add_log(self, part: bytes, *, at: int) -> None:
        """Add a part to the log here, at its place, which lies behind all of it where others
        fetched what is missing between; raises OSError."""
        if part:
            # At its place, and not at the end: a runner that was taken for dead writes the same.
            self.attempt.log.touch()
            with self.attempt.log.open("r+b") as file:
                file.seek(at)
                file.write(part)
            self.logged = at + len(part)

    def begin_next_attempt(self, reason: str) -> None:
        self.become(AttemptState.ABANDONED)
        self.attempt = Attempt(request=self.request, number=self.attempt.number + 1)
        self.keeper = keeper_name(self.request.directory.parent)
        self.state, self.taken, self.asked, self.logged = AttemptState.NEW, False, False, 0
        self.began_at, self.began = time.time(), time.monotonic()
        self.answer = TrialProgress(phase="waiting", reason=f"to be started again: {reason}")

    def _read_keeper(self) -> None:
        try:
            kept = json.loads((self.attempt.folder / KEEPER).read_text(encoding="utf-8"))
            self.keeper, self.taken = str(kept["keeper"]), bool(kept["taken"])
            self.logged = self.attempt.log.stat().st_size if self.attempt.log.exists() else 0
        except (OSError, ValueError, KeyError, TypeError):
            self.asked = True  # nobody has it


@dataclass(frozen=True, kw_only=True)
class RayTrialEndings:
    """What follows for a trial from what the keeper reports of it."""

    profile: ClusterProfile
    program: Program
    readers: Executor

    def take(self, trial: RayTrial, report: Mapping[str, Any] | None) -> None:
        """Take in the keeper's report, None where it has no such trial; raises OSError."""
        if report is None:
            if trial.taken:
                self._not_its_fault(trial, TrialState.LOST, _end_of(trial, KEEPER_LOST))
            trial.asked = True
            return
        if not trial.taken:
            trial.note(taken=True)
        trial.asked = True
        # A keeper of an earlier version, which ends with its trials, does not say where.
        trial.add_log(report["log"].encode("latin-1"), at=report.get("at", trial.logged))
        if report["end"]:
            self._end(trial, report)
        elif report.get("hosts"):
            trial.become(AttemptState.RUNNING)
            trial.answer = TrialProgress(
                phase="running", job_id=report["group"], host=report["hosts"]
            )
        else:
            trial.become(AttemptState.PENDING)
            trial.answer = TrialProgress(phase="waiting", reason=report["reason"])

    def settle(self, trial: RayTrial, status: TrialState, error: str) -> None:
        """End a trial that Ray was never given, or has lost, with this outcome."""
        attempt = trial.attempt
        trial.become(AttemptState.COMPLETING)
        self._read(trial, lambda: without_run(attempt, status, error))

    def _end(self, trial: RayTrial, report: Mapping[str, Any]) -> None:
        end = report["end"]
        trial.become(AttemptState.COMPLETING)
        for name, content in report["files"].items():
            (trial.attempt.folder / name).write_bytes(content.encode("latin-1"))
        status, reason = _ENDS.get(end["kind"]), end["reason"]
        if end.get("timed_out"):
            limit_s = trial.request.protocol.time_limit_s
            status, reason = TrialState.TIMEOUT, f"it exceeded its time limit of {limit_s:g} s"
        ended = AttemptEnd(
            status=status,
            reason=reason,
            exit_code=end.get("exit_code"),
            started_at=datetime.fromtimestamp(end["began_at"], UTC),
            duration_s=max(0.0, end["ended_at"] - end["began_at"]),
            host=report.get("hosts", ""),
            job_id=report.get("group"),
        )
        if end["kind"] in _NOT_ITS_FAULT:
            self._not_its_fault(trial, _NOT_ITS_FAULT[end["kind"]], ended)
        else:
            self._close(trial, ended)

    def _not_its_fault(self, trial: RayTrial, status: TrialState, end: AttemptEnd) -> None:
        """Begin another attempt, unless there were enough."""
        end = replace(end, status=status)
        most = self.profile.retries.attempts
        if trial.cancelled:
            self._close(trial, replace(end, status=TrialState.CANCELLED, reason="cancelled"))
        elif trial.attempt.number >= most:
            self._close(trial, replace(end, reason=f"{end.reason}, in each of {most} attempts"))
        else:
            abandon(trial.attempt, end, status=status.value)
            trial.begin_next_attempt(end.reason)

    def _close(self, trial: RayTrial, end: AttemptEnd) -> None:
        request, folder, program = trial.request, trial.attempt.folder, self.program
        self._read(trial, lambda: program.outcome(request, folder, end))

    def _read(self, trial: RayTrial, read: Callable[[], TrialOutcome]) -> None:
        """Read what it left in another thread: a log may be gigabytes long."""
        trial.become(AttemptState.ENDED)
        if isinstance(trial.answer, TrialProgress):
            trial.answer = replace(trial.answer, reason="reading what it left")
        trial.reading = self.readers.submit(write_outcome, trial.attempt, read)


def _end_of(trial: RayTrial, reason: str) -> AttemptEnd:
    """Return the end of an attempt of which nobody can say any more how long it ran."""
    log = trial.attempt.log
    ended_at = log.stat().st_mtime if log.exists() else trial.began_at
    return AttemptEnd(
        status=None,
        reason=reason,
        exit_code=None,
        started_at=datetime.fromtimestamp(min(trial.began_at, ended_at), UTC),
        duration_s=min(max(0.0, ended_at - trial.began_at), time.monotonic() - trial.began),
    )
