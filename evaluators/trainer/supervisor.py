"""Run one trial on this machine from beginning to end; every course ends in an outcome."""

from __future__ import annotations

import fcntl
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from autotune.files import FAILING
from autotune.knobs.losses import COMPARED
from autotune.measurement.metrics import AccumulationMeasurement
from autotune.schemas.choices import TrialState
from evaluators import time_limit
from evaluators.disk_room import unwritable
from evaluators.processes import processor_time_s
from evaluators.trainer.failure import root_cause
from evaluators.trainer.libraries import device_of_trials, gpu_count
from evaluators.trainer.ranks import RankProcesses
from evaluators.trainer.support import indivisible, routing_of, unsupported
from evaluators.trial import LOG, TrialOutcome, TrialRequest, log_tail, write_result

POLL_INTERVAL_S = 0.02
# Wait for the cause of a failure, which another rank may report.
GRACE_S = 1.0
LOCK_LIMIT_S = 5.0
HANG_LIMIT_S = 15.0
HANG_CHECK_INTERVAL_S = 1.0
# When ranks wait for each other, their main threads sleep and their communicators' threads use
# 0.2 % of a core each. Both must be idle: in a long all-reduce the main threads sleep, too, and on
# a busy machine working ranks may get as little as 2 % of a core.
IDLE_MAIN_THREADS_S = 0.05
IDLE_SHARE_OF_CORE = 0.05


@dataclass
class HangDetector:
    """Detects from processor time whether the ranks of a trial hang.

    Attributes:
        limit_s: seconds without work after which they do.
    """

    limit_s: float
    _checked: float = field(default_factory=time.monotonic)
    _worked: float = field(default_factory=time.monotonic)
    _main_s: float = 0.0
    _total_s: float = 0.0

    def hung(self, pids: Sequence[int]) -> bool:
        """Return whether no rank works any more; checks once per HANG_CHECK_INTERVAL_S."""
        now = time.monotonic()
        if now - self._checked < HANG_CHECK_INTERVAL_S:
            return False
        self._checked = now
        main_s = sum(processor_time_s(pid, main_thread_only=True) for pid in pids)
        total_s = sum(processor_time_s(pid) for pid in pids)
        idle_s = IDLE_SHARE_OF_CORE * len(pids) * (now - self._worked)
        if main_s - self._main_s > IDLE_MAIN_THREADS_S or total_s - self._total_s > idle_s:
            self._worked, self._main_s, self._total_s = now, main_s, total_s
        return now - self._worked > self.limit_s


@dataclass
class Supervisor:
    """Watches the ranks of one trial."""

    request: TrialRequest
    ranks: RankProcesses
    hangs: HangDetector
    cancelled: bool = False
    started: float = field(default_factory=time.monotonic)

    def cancel(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        self.cancelled = True

    def run(self, each_poll: Callable[[], None] = lambda: None) -> TrialOutcome:
        """Return the trial's outcome after all ranks have ended. Never raises."""
        started_at = datetime.now(UTC)
        try:
            state, error = self._run(each_poll)
        except Exception as raised:
            state, error = _failed(raised, self.request.directory)
        finally:
            self.ranks.end()
        outcome = outcome_of(
            self.request,
            self.ranks.report or {},
            state=state,
            error=error,
            started_at=started_at,
            duration_s=time.monotonic() - self.started,
        )
        return replace(outcome, log_tail=log_tail(self.request.directory))

    def _run(self, each_poll: Callable[[], None]) -> tuple[TrialState, str | None]:
        if refusal := self._refusal():
            return TrialState.CRASHED, refusal
        request = self.request
        # A trial that is run again adds to the log of the first attempt.
        with (request.directory / LOG).open("a", encoding="utf-8") as log:
            log.write(
                f"{request.transformer.name}: {request.strategy.short()} on {self.ranks.device}, "
                f"at most {request.machine.memory_gib:g} GiB a rank\n"
            )
        self.ranks.start()
        while True:
            self.ranks.watch()
            each_poll()
            if ended := self._ended():
                return ended
            time.sleep(POLL_INTERVAL_S)

    def _refusal(self) -> str | None:
        transformer, strategy = self.request.transformer, self.request.strategy
        groups = strategy.groups(self.request.machine.gpus_per_node)
        world_size = groups.world_size
        if groups.left_over:
            return f"{world_size} ranks cannot hold whole replicas of {strategy.short()}"
        if transformer.experts and groups.experts_left_over:
            return f"{world_size} ranks cannot hold whole copies of the experts"
        if self.ranks.device == "cuda" and gpu_count() < world_size:
            return (
                f"the layout needs {world_size} GPUs and this machine has {gpu_count()} "
                "(with CUDA_VISIBLE_DEVICES= it trains on the CPU)"
            )
        return unsupported(strategy) or indivisible(transformer, strategy)

    def _ended(self) -> tuple[TrialState, str | None] | None:
        ranks, limit_s = self.ranks, self.request.protocol.time_limit_s
        if self.cancelled:
            return TrialState.CANCELLED, "cancelled"
        if ranks.failures:
            cause = root_cause(ranks.failures)
            # Another rank may be about to report the cause of a lost connection or a signal.
            uncertain = cause.consequence or cause.signalled
            waited_s = time.monotonic() - ranks.failures[0].at
            if uncertain and ranks.running and waited_s < GRACE_S:
                return None
            return cause.status(on_cpu=ranks.device == "cpu"), cause.sentence()
        if not ranks.running:
            if ranks.report:
                return TrialState.OK, None
            return TrialState.CRASHED, "all ranks ended and rank 0 reported nothing"
        if time_limit.reached(self.started, time_limit_s=limit_s):
            reason = f"time limit of {limit_s:g} s reached; last: {ranks.progress}"
            return TrialState.TIMEOUT, reason
        if self.hangs.hung([rank.pid for rank in ranks.running]):
            reason = f"hung: no rank has worked for {self.hangs.limit_s:g} s; last: "
            return TrialState.TIMEOUT, reason + ranks.progress
        return None


def _failed(raised: Exception, folder: Path) -> tuple[TrialState, str]:
    """Return the trial's state and error after the supervisor failed. A full disk is not the
    strategy's fault."""
    if isinstance(raised, OSError) and raised.errno in FAILING:
        return TrialState.LOST, unwritable(folder, raised.errno)
    return TrialState.CRASHED, f"supervisor: {type(raised).__name__}: {raised}"


def outcome_of(
    request: TrialRequest,
    report: Mapping[str, Any],
    *,
    started_at: datetime,
    duration_s: float,
    state: TrialState = TrialState.OK,
    error: str | None = None,
) -> TrialOutcome:
    """Return the outcome of a trial on this machine.

    Args:
        report: rank 0's measurements; empty if it did not finish.
    """
    trained = state is TrialState.OK
    measurements = (
        AccumulationMeasurement(
            gradient_accumulation_steps=measured["gradient_accumulation_steps"],
            iteration_times_s=tuple(measured["iteration_times_s"]),
        )
        for measured in report.get("measurements", ())
    )
    return TrialOutcome(
        status=state,
        started_at=started_at,
        duration_s=duration_s,
        simulated=False,
        measurements=tuple(measurements) if trained else (),
        peak_memory_gib=tuple(report.get("peak_memory_gib", ())),
        loss=report["losses"][-1] if trained else None,
        first_losses=tuple(report["losses"][:COMPARED]) if trained else (),
        routing=routing_of(request.strategy) if request.transformer.experts else None,
        error=error,
        log_path=str(request.directory / LOG),
        host=socket.gethostname(),
        versions=report.get("versions", {}),
    )


@contextmanager
def owned(directory: Path) -> Iterator[bool]:
    """Lock the trial of `directory`; yield whether this process may run it.

    The supervisor and its ranks hold the lock, so it is free only after all have ended. Wait a
    moment for those of an owner that was just killed.
    """
    with (directory / "trial.lock").open("ab") as file:
        locked, end = False, time.monotonic() + LOCK_LIMIT_S
        while not locked and time.monotonic() < end:
            try:
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                locked = True
            except BlockingIOError:
                time.sleep(POLL_INTERVAL_S)
        yield locked


def supervise(
    request: TrialRequest,
    each_poll: Callable[[], None] = lambda: None,
    *,
    hang_limit_s: float = HANG_LIMIT_S,
) -> TrialOutcome:
    """Run the trial and write its result file; SIGTERM cancels it. Raises OSError.

    The caller may block SIGTERM before, so that none is lost.

    Args:
        each_poll: called at each poll of the ranks.
        hang_limit_s: see `HangDetector`.
    """
    ranks = RankProcesses(request, device_of_trials())
    supervisor = Supervisor(request, ranks, HangDetector(hang_limit_s))
    before = signal.signal(signal.SIGTERM, supervisor.cancel)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    try:
        outcome = supervisor.run(each_poll)
    finally:
        signal.signal(signal.SIGTERM, before)
    write_result(request.directory, outcome)
    return outcome
