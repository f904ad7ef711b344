"""Jobs, parsed from the output of Slurm's commands, and why they wait."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


# Why a job waits, in a sentence for the user.
_SENTENCES: Mapping[str, str] = {
    "": "not yet looked at by Slurm",
    "None": "not yet looked at by Slurm",
    "Resources": "waiting for free nodes",
    "Priority": "behind jobs of higher priority",
    "JobHeldUser": "held by the user",
    "JobHeldAdmin": "held by an administrator",
    "BeginTime": "not to begin yet",
    "Dependency": "waiting for another job",
    "DependencyNeverSatisfied": "waiting for another job that never succeeds",
    "Reservation": "waiting for its reservation to begin",
    "ReservationDeleted": "its reservation was deleted",
    "Licenses": "waiting for licences",
    "InvalidAccount": "the account is not valid",
    "InvalidQOS": "the QOS is not valid",
    "AccountNotAllowed": "the account may not use this partition",
    "QOSNotAllowed": "the QOS may not be used in this partition",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "PartitionNodeLimit": "more nodes than the partition allows",
    "PartitionTimeLimit": "a longer time limit than the partition allows",
    "PartitionConfig": "the partition cannot run such a job",
    "BadConstraints": "no nodes meet its constraints",
    "ReqNodeNotAvail": "nodes that it needs are not available",
    "NodeDown": "a node that it needs is down",
    "FrontEndDown": "no front end is up",
    "JobArrayTaskLimit": "the limit on running tasks of its array is reached",
    "JobHoldMaxRequeue": "held, because it was requeued too often",
    "Prolog": "its nodes are being prepared",
    "Cleaning": "what is left of an earlier run is being removed",
    "launch_failed_requeued_held": "held, because it could not be launched",
}
# By what a reason starts with; the rest of it names the limit.
_FAMILIES: Mapping[str, str] = {
    "QOS": "a limit of its QOS is reached",
    "Assoc": "a limit of the account is reached",
    "MaxCpuPerAccount": "a limit of the account is reached",
    "MaxNodePerAccount": "a limit of the account is reached",
    "MaxJobsPerAccount": "a limit of the account is reached",
    "ReqNodeNotAvail": "nodes that it needs are not available",
    "Nodes_required": "nodes that it needs are down, drained or reserved",
}


def why_pending(job: SlurmJob) -> str:
    """Return why a job waits, as in `waiting for free nodes (Resources)`."""
    if job.suspended:
        return f"suspended ({job.state})"
    word = job.reason.split(",")[0].strip().replace(" ", "_")
    families = (text for start, text in _FAMILIES.items() if word.startswith(start))
    sentence = _SENTENCES.get(word) or next(families, "waiting")
    return f"{sentence} ({job.reason or job.state})"
