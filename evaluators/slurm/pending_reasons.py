"""Why a job waits, in a sentence for the user; Slurm's own word is always in brackets."""

from __future__ import annotations

from collections.abc import Mapping

from evaluators.slurm.jobs import SlurmJob

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
