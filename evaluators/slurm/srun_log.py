"""Slurm's own messages in an attempt's log: failed nodes, steps that were not created. Pure."""

from __future__ import annotations

import re
from itertools import takewhile

# `Task launch … failed on node n05` is a slurmd that does not answer and is not yet down.
_NODE_FAILED = re.compile(
    r"srun: error: (?:Node failure on|Task launch for \S+ failed on node) ([\w.-]+)"
)
_NOT_CREATED = re.compile(
    r"srun: error: (?:Unable to (?:create step for job|confirm allocation for job) \d+: (.+)"
    r"|Unable to contact slurm controller)"
)
# There was a step, and no task of it was ever started. srun may exit with 0 then.
_NEVER_LAUNCHED = re.compile(
    r"srun: error: (timeout waiting for task launch, started 0 of \d+ tasks)"
)
_ENDED_BY_SLURM = re.compile(
    r"^(?:srun|slurmstepd): error: \*\*\* (?:JOB|STEP) .* DUE TO (NODE FAILURE|PREEMPTION)",
    re.MULTILINE,
)
_STATES = {"NODE FAILURE": "NODE_FAIL", "PREEMPTION": "PREEMPTED"}
_TASKS_ENDED = re.compile(r"srun: error: \S+: tasks? ")
_SLURMS_WORDS = ("srun:", "slurmstepd:")
# Only a step has a daemon, and tasks that end; and a srun that had to wait for it says so.
_THERE_WAS_A_STEP = re.compile(r"slurmstepd:|srun: error: \S+: tasks? |srun: Step created")


def failed_nodes(log_end: str) -> frozenset[str]:
    """Return the nodes that failed during the step, by srun's messages."""
    return frozenset(_NODE_FAILED.findall(log_end))


def why_ended(log_end: str) -> str:
    """Return the job state that slurmstepd's message implies, for a node failure or a preemption;
    else empty."""
    said = _ENDED_BY_SLURM.search(log_end)
    return _STATES[said.group(1)] if said else ""


def why_no_step(log_end: str) -> str:
    """Return Slurm's message if no step was created; else empty.

    Only the end of the log counts: srun may complain about an absent controller for a moment and
    then run a step that fails for its own reason.
    """
    last = _last_of_slurm(log_end)
    if any(_THERE_WAS_A_STEP.match(line) for line in last):
        return ""
    refusals = (match for line in last if (match := _NOT_CREATED.match(line)))
    newest = next(refusals, None)
    return (newest.group(1) or "Unable to contact slurm controller") if newest else ""


def why_never_launched(log_end: str) -> str:
    """Return Slurm's message if no task of the last step was started; else empty.

    If the trial continued after such a step, or some tasks ended, the failure is its own.
    """
    for line in _last_of_slurm(log_end):
        if _TASKS_ENDED.match(line):
            return ""
        if launched := _NEVER_LAUNCHED.match(line):
            return launched.group(1)
    return ""


def _last_of_slurm(log_end: str) -> list[str]:
    """Return Slurm's lines at the end of the log, newest first."""
    lines = [line for line in log_end.splitlines() if line.strip()]
    return list(takewhile(lambda line: line.startswith(_SLURMS_WORDS), reversed(lines)))
