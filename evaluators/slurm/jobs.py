"""Jobs, parsed from the output of Slurm's commands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

SQUEUE_FORMAT = "%i|%T|%V|%S|%e|%N|%r|%j"
SACCT_FORMAT = "JobIDRaw,State,Submit,Start,End,NodeList,ExitCode,JobName"
"""The name comes last in both, for a pipe in it would otherwise shift what follows."""

WAITING = frozenset(
    {
        "PENDING",
        "REQUEUED",
        "REQUEUE_FED",
        "REQUEUE_HOLD",
        "RESV_DEL_HOLD",
        "SPECIAL_EXIT",
        "SUSPENDED",
        "STOPPED",
    }
)
ACTIVE = frozenset(
    {"RUNNING", "CONFIGURING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT", "POWER_UP_NODE"}
)
FINISHED = frozenset(
    {
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "TIMEOUT",
        "DEADLINE",
        "OUT_OF_MEMORY",
        "NODE_FAIL",
        "BOOT_FAIL",
        "PREEMPTED",
        "REVOKED",
    }
)
_KNOWN = WAITING | ACTIVE | FINISHED
_UNSET = frozenset({"", "None", "(null)", "None assigned"})


@dataclass(frozen=True, kw_only=True)
class SlurmJob:
    """One job. Times are epoch seconds by the controller's clock; None: not yet.

    Attributes:
        state: Slurm's long name (`NODE_FAIL`).
        reason: why it is pending, in Slurm's word; empty if there is none.
        nodes: Slurm's expression (`n[01-04]`); empty until nodes are allocated.
        cancelled_by: id of the user who cancelled it; only from accounting.
        exit_code: of the batch script; only from accounting.
    """

    id: str
    name: str
    state: str
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    reason: str = ""
    nodes: str = ""
    cancelled_by: int | None = None
    exit_code: int | None = None

    @property
    def waits(self) -> bool:
        return self.state in WAITING

    @property
    def suspended(self) -> bool:
        """Return whether it has nodes but is suspended."""
        return self.state in {"SUSPENDED", "STOPPED"}

    @property
    def finished(self) -> bool:
        return self.state in FINISHED

    @property
    def completing(self) -> bool:
        """Return whether its script has ended and its nodes are being cleaned up."""
        return self.finished or self.state == "COMPLETING"


def jobs_of_squeue(text: str) -> list[SlurmJob]:
    """Parse the output of `squeue --format=SQUEUE_FORMAT` with times in epoch seconds.

    Other lines (a cluster's heading, the second line of a name) are skipped.
    """
    return [replace(job, reason=_text(reason)) for job, _, reason in _jobs(text)]


def jobs_of_sacct(text: str) -> list[SlurmJob]:
    """Parse the output of `sacct -X --parsable2 --format=SACCT_FORMAT`.

    Other lines are skipped.
    """
    return [
        replace(
            job,
            cancelled_by=int(user_id) if user_id.isdigit() else None,
            exit_code=_exit_code(exit_code),
        )
        for job, user_id, exit_code in _jobs(text)
    ]


def _jobs(text: str) -> Iterator[tuple[SlurmJob, str, str]]:
    """Yield each job, the user who cancelled it, and the field in which the formats differ."""
    for line in text.splitlines():
        fields = line.split("|", 7)
        if len(fields) < 8:
            continue
        job_id, state, submitted, started, ended, nodes, other, name = fields
        word, _, user_id = state.partition(" by ")
        if word in _KNOWN:
            job = SlurmJob(
                id=job_id,
                name=name,
                state=word,
                submitted_at=_time(submitted),
                started_at=_time(started),
                ended_at=_time(ended),
                nodes=_text(nodes),
            )
            yield job, user_id, other


def _time(text: str) -> float | None:
    return float(text) if text.isdigit() else None


def _text(text: str) -> str:
    return "" if text in _UNSET else text


def _exit_code(text: str) -> int | None:
    """Return `code:signal` as a shell's exit code."""
    code, _, signal = text.partition(":")
    if not (code.isdigit() and signal.isdigit()):
        return None
    return 128 + int(signal) if int(signal) else int(code)
