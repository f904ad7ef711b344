"""Runs one trial on this machine from beginning to end: every way it may go ends in an outcome."""

from __future__ import annotations

import fcntl
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from autotune.measurement import AccumulationMeasurement
from autotune.schemas import TrialState
from evaluators.trainer.device import device_of_trials, gpu_count
from evaluators.trainer.failure import root_cause
from evaluators.trainer.pulse import HANG_S, Pulse
from evaluators.trainer.ranks import Ranks
from evaluators.trainer.support import indivisible, unsupported
from evaluators.trial import TrialOutcome, TrialRequest
from evaluators.trial_files import LOG, log_tail, write_result

POLL_INTERVAL_S = 0.02
# Between the first sign of a failure and its cause, which may come from another rank.
GRACE_S = 1.0
LOCK_LIMIT_S = 5.0


@dataclass
class Verdict:
    """How a trial ended, and why."""

    status: TrialState
    error: str | None = None


@dataclass
class Supervisor:
    """Watches the ranks of one trial."""

    request: TrialRequest
    cancelled: bool = False
    started: float = field(default_factory=time.monotonic)
    pulse: Pulse = field(default_factory=Pulse)

    def cancel(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        self.cancelled = True

    def run(self, each_poll: Callable[[], None] = lambda: None) -> TrialOutcome:
        """The trial's outcome; no rank is left when it returns. Never raises."""
        started_at = datetime.now(UTC)
        ranks = Ranks(self.request, device_of_trials())
        try:
            verdict = self._refused(ranks) or self._watched(ranks, each_poll)
        except Exception as error:
            verdict = Verdict(TrialState.CRASHED, f"supervisor: {type(error).__name__}: {error}")
        finally:
            ranks.end()
        return self._outcome(verdict, ranks, started_at)

    def _refused(self, ranks: Ranks) -> Verdict | None:
        request = self.request
        world_size = request.strategy.world_size(request.machine.gpus_per_node)
        reason = unsupported(request.strategy) or indivisible(request.transformer, request.strategy)
        if ranks.device == "cuda" and gpu_count() < world_size:
            reason = (
                f"the strategy takes {world_size} GPUs and this machine shows {gpu_count()} "
                "(with CUDA_VISIBLE_DEVICES= it trains on the CPU)"
            )
        if world_size % request.strategy.model_parallel:
            reason = f"{world_size} ranks cannot hold whole replicas of {request.strategy.short()}"
        return Verdict(TrialState.CRASHED, reason) if reason else None

    def _watched(self, ranks: Ranks, each_poll: Callable[[], None]) -> Verdict:
        self._open_log(ranks)
        ranks.start()
        while True:
            ranks.watch()
            each_poll()
            if verdict := self._verdict(ranks):
                return verdict
            time.sleep(POLL_INTERVAL_S)

    def _open_log(self, ranks: Ranks) -> None:
        """A trial that is run again after a restart adds to the log of the first attempt."""
        request = self.request
        with (request.directory / LOG).open("a", encoding="utf-8") as log:
            log.write(
                f"{request.transformer.name}: {request.strategy.short()} on {ranks.device}, "
                f"at most {request.machine.memory_gib:g} GiB a rank\n"
            )

    def _verdict(self, ranks: Ranks) -> Verdict | None:
        if self.cancelled:
            return Verdict(TrialState.CANCELLED, "cancelled")
        if ranks.failures:
            return self._failed(ranks)
        if not ranks.running:
            lacking = Verdict(TrialState.CRASHED, "all ranks ended and rank 0 reported nothing")
            return Verdict(TrialState.OK) if ranks.report else lacking
        return self._too_long(ranks) or self._hung(ranks)

    def _failed(self, ranks: Ranks) -> Verdict | None:
        """None while a better cause may still arrive."""
        cause = root_cause(ranks.failures)
        waited = time.monotonic() - ranks.failures[0].at
        uncertain = cause.consequence or cause.signalled
        if uncertain and ranks.running and waited < GRACE_S:
            return None
        return Verdict(cause.status, cause.sentence())

    def _too_long(self, ranks: Ranks) -> Verdict | None:
        limit = self.request.protocol.time_limit_s
        if time.monotonic() - self.started < limit:
            return None
        return Verdict(
            TrialState.TIMEOUT, f"time limit of {limit:g} s reached; last: {ranks.progress}"
        )

    def _hung(self, ranks: Ranks) -> Verdict | None:
        if not self.pulse.lost([rank.pid for rank in ranks.running]):
            return None
        return Verdict(
            TrialState.TIMEOUT,
            f"hung: no rank has worked for {HANG_S:g} s; last: {ranks.progress}",
        )

    def _outcome(self, verdict: Verdict, ranks: Ranks, started_at: datetime) -> TrialOutcome:
        report: dict[str, Any] = dict(ranks.report or {})
        ok = verdict.status is TrialState.OK
        return TrialOutcome(
            status=verdict.status,
            started_at=started_at,
            duration_s=time.monotonic() - self.started,
            simulated=False,
            measurements=measurements_of(report) if ok else (),
            peak_memory_gib=tuple(report.get("peak_memory_gib", ())),
            loss=report["losses"][-1] if ok else None,
            error=verdict.error,
            log_tail=log_tail(self.request.directory),
            log_path=str(self.request.directory / LOG),
            host=socket.gethostname(),
            versions=report.get("versions", {}),
        )


def measurements_of(report: dict[str, Any]) -> tuple[AccumulationMeasurement, ...]:
    return tuple(
        AccumulationMeasurement(
            gradient_accumulation_steps=m["gradient_accumulation_steps"],
            iteration_times_s=tuple(m["iteration_times_s"]),
        )
        for m in report.get("measurements", ())
    )


@contextmanager
def owned(directory: Path) -> Iterator[bool]:
    """Whether this process alone may run the trial of `directory`.

    The lock is held by the supervisor and by its ranks, so it is free only when all are gone. Those
    of an owner that was just killed may still be going: they are waited for.
    """
    with (directory / "trial.lock").open("ab") as file:
        end = time.monotonic() + LOCK_LIMIT_S
        while not (locked := _locked(file.fileno())) and time.monotonic() < end:
            time.sleep(POLL_INTERVAL_S)
        yield locked


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def supervise(request: TrialRequest, each_poll: Callable[[], None] = lambda: None) -> TrialOutcome:
    """Run the trial and write its result file; SIGTERM cancels it. Raises OSError.

    SIGTERM may be blocked until then, so that none is lost.
    """
    supervisor = Supervisor(request)
    before = signal.signal(signal.SIGTERM, supervisor.cancel)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    try:
        outcome = supervisor.run(each_poll)
    finally:
        signal.signal(signal.SIGTERM, before)
    write_result(request.directory, outcome)
    return outcome
