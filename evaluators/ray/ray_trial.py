"""A trial on Ray, from submission to outcome."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Self

from autotune.files import write_whole
from autotune.schemas import TrialState
from evaluators.attempt.attempt import Attempt, abandoned_status
from evaluators.attempt.attempt_state import AttemptState
from evaluators.attempt.driver import AttemptedTrial, TrialContext
from evaluators.program import AttemptEnd
from evaluators.ray.work import keeper_name
from evaluators.trial import TrialOutcome, TrialProgress, TrialRequest

KEEPER = "keeper.json"
"""In an attempt's folder: the actor that was, or was to be, given it, and whether it has it."""

SUBMITTING = TrialProgress(phase="waiting", reason="being submitted to Ray")
KEEPER_LOST = "Ray's head, or the actor there that keeps trials, has died"

_NOT_ITS_FAULT = {"node": TrialState.NODE_FAIL, "lost": TrialState.LOST}
_ENDS = {"memory": TrialState.OOM, "cancelled": TrialState.CANCELLED}


@dataclass(kw_only=True, eq=False)
class RayTrial(AttemptedTrial):
    """A trial on Ray. Only the backend's thread changes it, except for `cancelled`.

    Attributes:
        keeper: the actor that has the attempt, or will.
        taken: whether it is known to have it.
        asked: whether it was asked for the attempt since this object was made.
        logged: number of log bytes fetched.
        began_at: start of the attempt, as far as is known here (epoch); `began` is the same by the
            monotonic clock.
    """

    answer: TrialOutcome | TrialProgress = SUBMITTING
    keeper: str = ""
    taken: bool = False
    asked: bool = False
    logged: int = 0
    began_at: float = field(default_factory=time.time)
    began: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, request: TrialRequest, context: TrialContext) -> Self:
        trial = super().of(request, context)
        trial.keeper = keeper_name(request.directory.parent)
        if abandoned_status(trial.attempt.folder) is not None:
            trial.attempt = Attempt(request=request, number=trial.attempt.number + 1)
        trial._read_keeper()
        return trial

    def note(self, *, taken: bool) -> None:
        """Record which keeper gets the attempt. Raises OSError."""
        self.attempt.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"keeper": self.keeper, "taken": taken})
        write_whole(self.attempt.folder / KEEPER, text)
        self.taken = taken

    def add_log(self, part: bytes, *, at: int) -> None:
        """Write a part of the log at its offset, which may leave a gap that others fetched. Raises
        OSError."""
        if part:
            # At its place, and not at the end: a runner that was taken for dead writes the same.
            self.attempt.log.touch()
            with self.attempt.log.open("r+b") as file:
                file.seek(at)
                file.write(part)
            self.logged = at + len(part)

    def take(self, report: Mapping[str, Any] | None) -> None:
        """Process the keeper's report; None: it has no such trial. Raises OSError."""
        if report is None:
            if self.taken:
                self.try_again(self._lost())
            self.asked = True
            return
        if not self.taken:
            self.note(taken=True)
        self.asked = True
        # A keeper of an earlier version, which ends with its trials, does not say where.
        self.add_log(report["log"].encode("latin-1"), at=report.get("at", self.logged))
        if report["end"]:
            self._end(report)
        elif report.get("hosts"):
            self.become(AttemptState.RUNNING)
            self.answer = TrialProgress(
                phase="running", job_id=report["group"], host=report["hosts"]
            )
        else:
            self.become(AttemptState.PENDING)
            self.answer = TrialProgress(phase="waiting", reason=report["reason"])

    def begin_next_attempt(self, reason: str) -> None:
        super().begin_next_attempt(reason)
        self.keeper = keeper_name(self.request.directory.parent)
        self.taken, self.asked, self.logged = False, False, 0
        self.began_at, self.began = time.time(), time.monotonic()

    def _end(self, report: Mapping[str, Any]) -> None:
        end = report["end"]
        self.become(AttemptState.COMPLETING)
        for name, content in report["files"].items():
            (self.attempt.folder / name).write_bytes(content.encode("latin-1"))
        status, reason = _ENDS.get(end["kind"]), end["reason"]
        if end.get("timed_out"):
            limit_s = self.request.protocol.time_limit_s
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
            self.try_again(replace(ended, status=_NOT_ITS_FAULT[end["kind"]]))
        else:
            self.close(ended)

    def _lost(self) -> AttemptEnd:
        """Return the end of an attempt whose duration nobody knows any more."""
        log = self.attempt.log
        ended_at = log.stat().st_mtime if log.exists() else self.began_at
        return AttemptEnd(
            status=TrialState.LOST,
            reason=KEEPER_LOST,
            exit_code=None,
            started_at=datetime.fromtimestamp(min(self.began_at, ended_at), UTC),
            duration_s=min(max(0.0, ended_at - self.began_at), time.monotonic() - self.began),
        )

    def _read_keeper(self) -> None:
        try:
            kept = json.loads((self.attempt.folder / KEEPER).read_text(encoding="utf-8"))
            self.keeper, self.taken = str(kept["keeper"]), bool(kept["taken"])
            self.logged = self.attempt.log.stat().st_size if self.attempt.log.exists() else 0
        except (OSError, ValueError, KeyError, TypeError):
            self.asked = True  # nobody has it
