"""The allocation of pilot mode: the one that this process was started in, or one that it holds."""

from __future__ import annotations

import fcntl
import json
import logging
import math
import os
import re
import secrets
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, ClassVar, Self, assert_never

from pydantic import TypeAdapter

from autotune.files import write_whole
from autotune.schemas.choices import TrialState
from evaluators.attempt import NeverSubmitted, write_abandoned
from evaluators.cluster.profile import ClusterProfile
from evaluators.program import AttemptEnd
from evaluators.slurm.attempt_files import read_attempt_files
from evaluators.slurm.batch_script import JOB_SCRIPT, LEASE, LEASE_S, holding_script
from evaluators.slurm.commands import Slurm, SlurmError
from evaluators.slurm.job_attempt import JobAttempt
from evaluators.slurm.job_decision import (
    NO_LOSS,
    NODE_FAILED,
    AbandonAttempt,
    EndAttempt,
    JobStatus,
    NodeLoss,
    RefusedStep,
    Stay,
)
from evaluators.slurm.job_records import steady_time
from evaluators.slurm.job_tracker import JobTracker

ALLOCATION_ENDED = NodeLoss(status=TrialState.LOST, reason="its allocation has ended")


@dataclass(frozen=True, kw_only=True)
class RunningAllocation:
    """An allocation that has its nodes.

    Attributes:
        nodes: those that are up, neighbours next to each other.
        ends_at: epoch of its time limit; None if it has none.
        queried_at: start of the status call that showed it (`steady_time`).
    """

    job_id: str
    nodes: tuple[str, ...]
    ends_at: float | None
    queried_at: float

    def loss_of(self, nodes: Collection[str], *, since: float) -> NodeLoss | None:
        """Return what became of these nodes: those that it no longer has have failed.

        None: unknown as of `since` (epoch).
        """
        if self.queried_at <= since:
            return None
        failed = frozenset(nodes) - set(self.nodes)
        if not failed:
            return NO_LOSS
        return NodeLoss(status=TrialState.NODE_FAIL, reason=NODE_FAILED, failed_nodes=failed)


@dataclass(frozen=True, kw_only=True)
class AllocationRequest:
    """Size and duration of a wanted allocation."""

    nodes: int
    gpus_per_node: int
    exclude: tuple[str, ...] = ()


_REQUEST = TypeAdapter(AllocationRequest)


class Allocation:
    """At most one allocation at a time. Not thread-safe.

    Attributes:
        replaceable: whether another one can be requested if this one is unsuitable.
        running: None unless it runs.
        waiting: why there is none, in a sentence for the user.
    """

    replaceable: ClassVar[bool]

    def __init__(self, tracker: JobTracker, *, waiting: str) -> None:
        self.running: RunningAllocation | None = None
        self.waiting = waiting
        self._tracker = tracker
        self._hostnames = Hostnames(tracker.slurm)

    def advance(self, wanted: AllocationRequest | None) -> NeverSubmitted | None:
        """Process Slurm's report, and request an allocation if one is wanted and there is none.

        Return why none can be had; every waiting trial then ends with this reason.
        """
        raise NotImplementedError

    def node_loss(self, job_id: str, nodes: Collection[str], *, since: float) -> NodeLoss | None:
        raise NotImplementedError

    def keep(self, needed_s: float) -> None:
        """Hold it for this many seconds from now, in case this process ends."""

    def release(self) -> None:
        """Release it: nothing runs in it, and nothing will."""

    def leave(self) -> None:
        """Release it for good: this process needs neither it nor another one."""

    def close(self) -> None:
        """Detach: a later process finds it again."""


class Hostnames:
    """Expands `n[01-03]`, each expression once."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._known: dict[str, tuple[str, ...]] = {}

    def of(self, expression: str) -> tuple[str, ...]:
        """Return the nodes of the expression; empty if Slurm does not answer."""
        if expression not in self._known:
            try:
                self._known[expression] = tuple(self._slurm.nodes(expression))
            except SlurmError:
                return ()
        return self._known[expression]

    def running(self, job_id: str | None, status: JobStatus) -> RunningAllocation | None:
        """Return what the job of this id offers; None unless it runs."""
        job = next((job for job in status.jobs if job.id == job_id), None)
        if job is None or job.state != "RUNNING" or status.queried_at is None:
            return None
        nodes = self.of(job.nodes) if job.nodes else ()
        if not nodes:
            return None
        return RunningAllocation(
            job_id=job.id, nodes=nodes, ends_at=job.ended_at, queried_at=status.queried_at
        )


class UserAllocation(Allocation):
    """The allocation that this process was started in: never requested, never released."""

    replaceable = False

    def __init__(self, job_id: str, job_name: str, tracker: JobTracker) -> None:
        waiting = f"looking at the allocation that autotune was started in ({job_id})"
        super().__init__(tracker, waiting=waiting)
        self._job_id, self._job_name = job_id, job_name
        self._ended = False
        tracker.follow(job_name, submitted_at=0.0)

    @classmethod
    def here(cls, tracker: JobTracker) -> Self | None:
        job_id, name = os.environ.get("SLURM_JOB_ID", ""), os.environ.get("SLURM_JOB_NAME", "")
        return cls(job_id, name, tracker) if job_id and name else None

    def advance(self, wanted: AllocationRequest | None) -> NeverSubmitted | None:
        status = self._tracker.status(self._job_name)
        if status.queried_at is None:
            return None
        jobs = [job for job in status.jobs if job.id == self._job_id]
        if jobs:
            self.running = self._hostnames.running(self._job_id, status)
        self._ended = all(job.finished for job in jobs)
        if self._ended and wanted:
            error = "the allocation that autotune was started in has ended"
            return NeverSubmitted(status=TrialState.REFUSED, error=error)
        return None

    def node_loss(self, job_id: str, nodes: Collection[str], *, since: float) -> NodeLoss | None:
        if job_id != self._job_id or self._ended:
            return ALLOCATION_ENDED
        return self.running.loss_of(nodes, since=since) if self.running else None


ALLOCATIONS = "allocations"
REQUEST = "need.json"
HOLDER = "holder"
RENEWAL_S = 10.0
PATIENCE_S = 30.0
"""It is polled more often for so long after its request, since it may start at once."""
log = logging.getLogger(__name__)


class HeldAllocation(Allocation):
    """A job that sleeps while steps run next to it: requested when there is work, and again when it
    is lost, too small or about to end.

    It ends when its lease does, so a service that never returns holds it no longer than its last
    trials take. Its folder, `<trials>/allocations/<profile>/<name>/`, has the files of an attempt
    (`attempt_files`) and:

        need.json   the request
        lease       for how long it is needed, and a renewal's name
        holder      locked by the process that holds it, while that lives
    """

    replaceable = True

    def __init__(self, profile: ClusterProfile, tracker: JobTracker, trials: Path) -> None:
        super().__init__(tracker, waiting="no allocation has been requested yet")
        self._profile = profile
        self._root = trials / ALLOCATIONS / (re.sub(r"[^\w.-]", "-", profile.name) or "-")
        self._past: dict[str, NodeLoss] = {}
        self._losses = 0
        self._job: JobAttempt | None = None
        self._lock: IO[str] | None = None
        self._job_ids: set[str] = set()
        self._renewed_at = 0.0
        self._nodes = 0
        self._find_again()

    def advance(self, wanted: AllocationRequest | None) -> NeverSubmitted | None:
        job = self._job
        if job is None:
            if wanted:
                self._begin(wanted)
            return None
        decision = job.advance()
        if job.status:
            self._job_ids |= {slurm_job.id for slurm_job in job.status.jobs}
            submitted_s = steady_time() - self._tracker.submit_status(job.name).at
            self._tracker.watch(hurry=self.running is None and submitted_s < PATIENCE_S)
        match decision:
            case Stay():
                status = None if job.cancelled else job.status
                self.running = self._hostnames.running(decision.job_id, status) if status else None
                self._wait_for(self._tracker.trouble or decision.reason or "it has begun")
                return None
            case NeverSubmitted(error=error):
                self._forget(job, error)
                self._job = None
                error = f"the allocation of pilot mode: {error}"
                refused = NeverSubmitted(status=TrialState.REFUSED, error=error)
                return None if job.cancelled else refused
            case EndAttempt(end=end) | AbandonAttempt(end=end) | RefusedStep(end=end):
                return self._ended(job, end)
            case _:
                assert_never(decision)

    def node_loss(self, job_id: str, nodes: Collection[str], *, since: float) -> NodeLoss | None:
        if job_id in self._past:
            return self._past[job_id]
        if self.running and self.running.job_id == job_id:
            return self.running.loss_of(nodes, since=since)
        if self._job and (not self._job_ids or job_id in self._job_ids):
            return None
        return ALLOCATION_ENDED

    def keep(self, needed_s: float) -> None:
        now = time.monotonic()
        if self._job is None or now - self._renewed_at < RENEWAL_S:
            return
        self._renewed_at = now
        try:
            write_whole(self._job.folder / LEASE, _lease(needed_s))
        except OSError:
            log.warning("the lease of an allocation could not be renewed", exc_info=True)

    def release(self) -> None:
        if self._job and not self._job.cancelled:
            self.running = None
            self._losses = 0
            self._wait_for("being given back: the next one follows")
            self._job.cancel()

    def leave(self) -> None:
        if self._job:
            self.release()
            self._forget(self._job, "given back")
            self.running, self._job = None, None

    def close(self) -> None:
        if self._lock:
            self._lock.close()
            self._lock = None

    def _find_again(self) -> None:
        """Resume the newest allocation of an earlier process, and end its others.

        An allocation of another living process, such as another runner on the same data folder, is
        left alone: two that share one would not know of each other's trials on its nodes.
        """
        written: list[tuple[float, Path, AllocationRequest]] = []
        for folder in self._root.glob("*/"):
            files, request = read_attempt_files(folder), _read_request(folder)
            if request and files.intended_at is not None and not files.abandoned:
                written.append((files.intended_at, folder, request))
        written.sort(key=lambda allocation: allocation[0])
        for _, folder, request in written:
            lock = _lock(folder)
            if lock is None:
                continue
            if self._job:
                self._job.cancel()
                self._forget(self._job, "another one is in use")
            job = self._attempt(folder, request)
            job.follow(read_attempt_files(folder))
            self._use(job, request)
            self._lock = lock

    def _begin(self, request: AllocationRequest) -> None:
        folder = self._root / f"autotune-pilot-{secrets.token_hex(4)}"
        job = self._attempt(folder, request)
        self._use(job, request)
        self._wait_for("being submitted to Slurm")
        job.submit()

    def _use(self, job: JobAttempt, request: AllocationRequest) -> None:
        self._job, self._job_ids, self._nodes = job, set(), request.nodes
        self._renewed_at = time.monotonic()

    def _attempt(self, folder: Path, request: AllocationRequest) -> JobAttempt:
        def prepare() -> None:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = self._lock or _lock(folder)
            script = holding_script(
                self._profile, name=folder.name, folder=folder, **asdict(request)
            )
            write_whole(folder / LEASE, _lease(0.0))
            write_whole(folder / REQUEST, json.dumps(asdict(request)))
            write_whole(folder / JOB_SCRIPT, script)

        return JobAttempt(
            self._tracker,
            name=folder.name,
            folder=folder,
            prepare=prepare,
            most_submissions=self._profile.retries.attempts,
        )

    def _ended(self, job: JobAttempt, end: AttemptEnd) -> NeverSubmitted | None:
        status = end.status or TrialState.NODE_FAIL
        reason = end.reason or "ended by itself"
        job_id, began = end.job_id or "", job.files.claimed
        failed_nodes = self._tracker.failed_nodes(job.name)
        self._forget(job, reason)
        self.running, self._job = None, None
        if job.cancelled or (end.exit_code == 0 and began):
            self._past[job_id] = ALLOCATION_ENDED
            return None
        self._losses += 1
        self._tracker.cancel(job.name)  # should Slurm have put it back
        log.warning("the allocation %s is lost: %s", job_id, reason)
        lost = TrialState.PREEMPTED if status is TrialState.TIMEOUT else status
        self._past[job_id] = NodeLoss(
            status=lost, reason=f"its allocation: {reason}", failed_nodes=failed_nodes
        )
        if began and self._losses < self._profile.retries.attempts:
            return None
        self._losses = 0
        return NeverSubmitted(status=status, error=f"the allocation of pilot mode: {reason}")

    def _forget(self, job: JobAttempt, reason: str) -> None:
        self.close()
        self._tracker.forget(job.name)
        try:
            write_abandoned(job.folder, status="ended", reason=reason, duration_s=0.0)
        except OSError:
            log.warning("an allocation could not be marked as ended", exc_info=True)

    def _wait_for(self, what: str) -> None:
        self.waiting = f"waiting for the allocation of {self._nodes} nodes: {what}"


def _lease(needed_s: float) -> str:
    return f"{max(math.ceil(needed_s), LEASE_S)} {secrets.token_hex(4)}\n"


def _lock(folder: Path) -> IO[str] | None:
    """Return a file that is locked until it is closed or this process ends; None if another process
    has locked it."""
    file = (folder / HOLDER).open("a", encoding="utf-8")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except OSError as error:  # a file system without locks
        log.warning(
            "%s cannot be locked (%s): a second runner may use this one's nodes", folder, error
        )
    return file


def _read_request(folder: Path) -> AllocationRequest | None:
    try:
        return _REQUEST.validate_json((folder / REQUEST).read_bytes())
    except (OSError, ValueError):
        return None
