"""Jobs that are to be submitted, in order, and how far each submission has come."""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from autotune.files import is_file_system_failure
from evaluators.slurm.attempt_files import write_intent, write_job
from evaluators.slurm.batch_script import JOB_SCRIPT
from evaluators.slurm.commands import Slurm, SlurmRefused, SlurmUnavailable
from evaluators.slurm.steady_clock import steady_time

log = logging.getLogger(__name__)

# The same job will be taken later.
_QUEUE_FULL = re.compile(r"MaxSubmit|MaxJobCount", re.IGNORECASE)


class SubmitState(Enum):
    """How far a submission has come."""

    QUEUED = "queued"
    UNDER_WAY = "under way"
    TRIED = "tried"  # and sbatch ended, whether it told an id or not
    REFUSED = "refused"
    FAILED = "failed"  # before sbatch was called


@dataclass(frozen=True, kw_only=True)
class SubmitStatus:
    """How a submission stands.

    Attributes:
        at: when it came so far (`steady_time`).
        job_id: that sbatch told.
        error: of a submission that was refused or that failed, or that sbatch said nothing about.
    """

    state: SubmitState
    at: float
    job_id: str | None = None
    error: Exception | None = None

    def is_before(self, asked_at: float) -> bool:
        """Whether a status call of that time would show its job."""
        return self.state is SubmitState.TRIED and self.at < asked_at


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A job to be submitted.

    Attributes:
        prepare: writes `job.sh` into `folder` just before; what it raises (OSError, ValueError)
            is kept as this submission's failure, but for want of room: that is waited for.
    """

    name: str
    folder: Path
    prepare: Callable[[], None]


class SubmitQueue:
    """Submissions in the order in which they are sent. Not for several threads at once.

    Attributes:
        full: what keeps jobs from being submitted for the moment; empty where nothing does.
        due: when the next one may be sent (monotonic clock).
    """

    def __init__(self, *, full_pause_s: float) -> None:
        self.full = ""
        self.due = 0.0
        self._full_pause_s = full_pause_s
        self._waiting: deque[Submission] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, submission: Submission) -> None:
        self._waiting.append(submission)

    def take(self) -> Submission:
        """Return the next one, which waits no more."""
        return self._waiting.popleft()

    def put_back(self, submission: Submission, error: Exception | None) -> None:
        """Put one back that is not to be had for a while, nor is any other: Slurm takes none, or
        the disk has no room."""
        self._waiting.appendleft(submission)
        self.due = time.monotonic() + self._full_pause_s
        if isinstance(error, OSError):
            self.full = f"its folder cannot be written: {error.strerror}"
        else:
            self.full = f"no more jobs may be in the queue now ({error})"

    def withdraw(self, name: str) -> bool:
        """Take out what has this name; return whether there was such a one."""
        waiting = len(self._waiting)
        self._waiting = deque(job for job in self._waiting if job.name != name)
        return len(self._waiting) < waiting


def submit(submission: Submission, slurm: Slurm) -> SubmitStatus:
    """Prepare the job and call sbatch; it stays queued where Slurm takes no more for the moment, or
    the disk."""
    try:
        submission.prepare()
        write_intent(submission.folder, name=submission.name, at=time.time())
    except (OSError, ValueError) as error:
        # Of a trial that ended for want of room no result could be written down.
        return _status(
            SubmitState.QUEUED if is_file_system_failure(error) else SubmitState.FAILED, error
        )
    try:
        job_id = slurm.sbatch(submission.folder / JOB_SCRIPT)
    except SlurmUnavailable as error:
        return _status(SubmitState.TRIED, error)  # perhaps it is there: its name will tell
    except SlurmRefused as error:
        full = _QUEUE_FULL.search(str(error))
        return _status(SubmitState.QUEUED if full else SubmitState.REFUSED, error)
    status = SubmitStatus(state=SubmitState.TRIED, at=steady_time(), job_id=job_id)
    try:
        write_job(submission.folder, job_id=job_id)
    except OSError:
        log.warning("the id of a job could not be written down", exc_info=True)
    return status


def _status(state: SubmitState, error: Exception) -> SubmitStatus:
    return SubmitStatus(state=state, at=steady_time(), error=error)
