"""One trial in pilot mode, while it is under way."""

from __future__ import annotations

import json
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum

from evaluators.slurm.attempt import CANCELLED, OVER, Attempt, attempts_of
from evaluators.slurm.pilot.packing import Waiting
from evaluators.slurm.pilot.steps import Place, Run
from evaluators.trial import TrialOutcome, TrialProgress, TrialRequest

NO_STEP = "no step"
"""The status of an attempt for which Slurm made no step: it is not the trial's, nor a node's."""


class Phase(Enum):
    """How far a trial has come."""

    NEW = "new"  # its folder has not been looked at
    WAITING = "waiting"
    RUNNING = "running"
    OVER = "over"  # its processes are gone; its nodes are not free until it is judged
    READING = "reading"


@dataclass(kw_only=True, eq=False)
class Entry:
    """Changed by the dispatcher's thread alone, but for `cancelled`.

    Attributes:
        told: what is answered when somebody asks.
        place: of the attempt that runs, or ran last.
        over_at: when its processes were found gone (epoch).
        passed_over, passed_since: see `Waiting`; the latter by the monotonic clock.
        failures: attempts that were given up, but for `no_steps`.
    """

    request: TrialRequest
    attempt: Attempt
    told: TrialOutcome | TrialProgress = field(
        default_factory=lambda: TrialProgress(phase="waiting")
    )
    phase: Phase = Phase.NEW
    arrived: float = field(default_factory=time.monotonic)
    cancelled: bool = False
    run: Run | None = None
    place: Place | None = None
    began: float = 0.0
    over_at: float = 0.0
    passed_over: int = 0
    passed_since: float | None = None
    failures: int = 0
    no_steps: int = 0
    reading: Future[TrialOutcome] | None = None

    @classmethod
    def of(cls, request: TrialRequest) -> Entry:
        """With what its folder says about earlier attempts."""
        attempts = attempts_of(request)
        given_up = [_status(attempt) for attempt in attempts]
        return cls(
            request=request,
            attempt=attempts[-1] if attempts else Attempt(request=request, number=1),
            cancelled=(request.directory / CANCELLED).exists(),
            failures=sum(status not in {None, NO_STEP} for status in given_up),
            no_steps=sum(status == NO_STEP for status in given_up),
        )

    @property
    def width(self) -> int:
        return self.request.strategy.num_nodes

    @property
    def holds_nodes(self) -> bool:
        return self.phase in {Phase.RUNNING, Phase.OVER}

    def waiting(self, now: float) -> Waiting:
        """As the packing sees it."""
        return Waiting(
            name=self.request.token,
            width=self.width,
            group=self.request.group,
            passed_over=self.passed_over,
            waited_s=now - self.passed_since if self.passed_since is not None else 0.0,
        )

    def pass_over(self, nodes: int, now: float) -> None:
        self.passed_over += nodes
        self.passed_since = now if self.passed_since is None else self.passed_since

    def wait(self, reason: str) -> None:
        self.phase, self.run, self.place = Phase.WAITING, None, None
        self.told = TrialProgress(phase="waiting", reason=reason)

    def runs(self, run: Run, place: Place) -> None:
        self.phase, self.run, self.place = Phase.RUNNING, run, place
        self.began = time.monotonic()
        self.passed_over, self.passed_since = 0, None
        self.told = TrialProgress(phase="running", job_id=place.job_id, host=",".join(place.nodes))

    def next_attempt(self) -> None:
        self.attempt = Attempt(request=self.request, number=self.attempt.number + 1)


def _status(attempt: Attempt) -> str | None:
    """Of an attempt that was given up."""
    try:
        plain = json.loads((attempt.folder / OVER).read_text(encoding="utf-8"))
        return str(plain["status"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError):
        return "unknown"
