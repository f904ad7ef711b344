"""A job that is to be submitted, and those that wait for it."""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evaluators.slurm.attempt_files import write_intent, write_job
from evaluators.slurm.batch_script import JOB_SCRIPT
from evaluators.slurm.commands import Slurm, SlurmRefused, SlurmUnavailable
from evaluators.slurm.job_records import SubmitState, SubmitStatus

log = logging.getLogger(__name__)

FULL_PAUSE_S = 10.0
"""Before sbatch is tried again after the limit on jobs in the queue was reached."""

# The same job will be taken later.
_QUEUE_FULL = re.compile(r"MaxSubmit|MaxJobCount", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A job to be submitted.

    Attributes:
        prepare: writes `job.sh` into `folder` just before; what it raises (OSError, ValueError)
            is kept as this submission's failure.
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

    def __init__(self) -> None:
        self.full = ""
        self.due = 0.0
        self._waiting: deque[Submission] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, submission: Submission) -> None:
        self._waiting.append(submission)

    def take(self) -> Submission:
        """The next one, which waits no more."""
        return self._waiting.popleft()

    def put_back(self, submission: Submission, error: Exception | None) -> None:
        """It was not taken, as none would be for a while."""
        self._waiting.appendleft(submission)
        self.due = time.monotonic() + FULL_PAUSE_S
        self.full = f"no more jobs may be in the queue now ({error})"

    def withdraw(self, name: str) -> bool:
        """Whether there was one of that name; there is none now."""
        waiting = len(self._waiting)
        self._waiting = deque(each for each in self._waiting if each.name != name)
        return len(self._waiting) < waiting


def send(submission: Submission, slurm: Slurm) -> SubmitStatus:
    """Prepare the job and call sbatch; queued again where Slurm takes no more for the moment."""
    try:
        submission.prepare()
        write_intent(submission.folder, name=submission.name, at=time.time())
    except (OSError, ValueError) as error:
        return _sent(SubmitState.FAILED, error)
    try:
        job_id = slurm.sbatch(submission.folder / JOB_SCRIPT)
    except SlurmUnavailable as error:
        return _sent(SubmitState.TRIED, error)  # perhaps it is there: its name will tell
    except SlurmRefused as error:
        full = _QUEUE_FULL.search(str(error))
        return _sent(SubmitState.QUEUED if full else SubmitState.REFUSED, error)
    sent = SubmitStatus(state=SubmitState.TRIED, at=time.time(), job_id=job_id)
    try:
        write_job(submission.folder, job_id=job_id)
    except OSError:
        log.warning("the id of a job could not be written down", exc_info=True)
    return sent


def _sent(state: SubmitState, error: Exception) -> SubmitStatus:
    return SubmitStatus(state=state, at=time.time(), error=error)
