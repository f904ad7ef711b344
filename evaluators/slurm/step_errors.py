"""What srun itself says in a trial's log where Slurm, and not the trial, made a step fail. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import takewhile

from autotune.schemas import TrialState
from evaluators.program import AttemptEnd
from evaluators.slurm.judgement import NODE_FAILED, Retry

# `Task launch … failed on node n05` is a slurmd that does not answer and is not yet down.
_NODE_FAILED = re.compile(
    r"srun: error: (?:Node failure on|Task launch for \S+ failed on node) ([\w.-]+)"
)
_NOT_CREATED = re.compile(
    r"srun: error: (?:Unable to (?:create step for job|confirm allocation for job) \d+: (.+)"
    r"|Unable to contact slurm controller)"
)
_SLURMS_WORDS = ("srun:", "slurmstepd:")
# Only a step has a daemon, and tasks that end; and a srun that had to wait for it says so.
_THERE_WAS_A_STEP = re.compile(r"slurmstepd:|srun: error: \S+: tasks? |srun: Step created")


@dataclass(frozen=True, kw_only=True)
class NoStep:
    """Slurm made no step, for a reason that passes: the same is tried again."""

    ended: AttemptEnd


def judge_step(ended: AttemptEnd, log_end: str, *, cancelled: bool) -> AttemptEnd | Retry | NoStep:
    """The end as it was, unless Slurm and not the trial is to blame for it.

    Args:
        log_end: the last lines of the attempt's log.
        cancelled: whether we were asked to end it: then it is not tried again.
    """
    # srun may exit with 0 where the only node of a step failed.
    failed = bool(failed_nodes(log_end))
    refusal = why_no_step(log_end) if ended.exit_code else ""
    if ended.status is not None or not (failed or refusal):
        return ended
    if cancelled:
        return replace(ended, status=TrialState.CANCELLED, reason="cancelled")
    if failed:
        return Retry(ended=replace(ended, status=TrialState.NODE_FAIL, reason=NODE_FAILED))
    reason = f"Slurm did not start its step: {refusal}"
    return NoStep(ended=replace(ended, status=TrialState.LOST, reason=reason))


def failed_nodes(log_end: str) -> frozenset[str]:
    """The nodes that srun says have failed under its step."""
    return frozenset(_NODE_FAILED.findall(log_end))


def why_no_step(log_end: str) -> str:
    """In Slurm's words, why there was no step at all; empty where there was one.

    Only what a log ends with tells: a controller that is away for a moment is complained about by
    a srun whose step then runs, and fails for a reason of its own.
    """
    last = [line for line in log_end.splitlines() if line.strip()]
    last = list(takewhile(lambda line: line.startswith(_SLURMS_WORDS), reversed(last)))
    if any(_THERE_WAS_A_STEP.match(line) for line in last):
        return ""
    refusals = (match for line in last if (match := _NOT_CREATED.match(line)))
    newest = next(refusals, None)
    return (newest.group(1) or "Unable to contact slurm controller") if newest else ""
