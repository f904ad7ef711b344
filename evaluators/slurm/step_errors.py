"""What srun itself says in a trial's log where Slurm, and not the trial, made a step fail. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

# `Task launch … failed on node n05` is a slurmd that does not answer and is not yet down.
_NODE_FAILED = re.compile(
    r"srun: error: (?:Node failure on|Task launch for \S+ failed on node) ([\w.-]+)"
)
_NOT_CREATED = re.compile(
    r"srun: error: (?:Unable to (?:create step for job|confirm allocation for job) \d+: (.+)"
    r"|(?:Unable to contact slurm controller.*))"
)


@dataclass(frozen=True, kw_only=True)
class StepError:
    """Why a step failed that is not the trial's fault.

    Attributes:
        failed_nodes: empty where no node failed.
        not_created: in Slurm's words, why there was no step at all; empty where there was one.
    """

    failed_nodes: frozenset[str] = frozenset()
    not_created: str = ""


def step_error(log_tail: str) -> StepError | None:
    """What the last lines of a log say; None where srun complains about nothing of the kind."""
    failed = frozenset(match.group(1) for match in _NODE_FAILED.finditer(log_tail))
    refusals = [match.group(1) or "" for match in _NOT_CREATED.finditer(log_tail)]
    if not failed and not refusals:
        return None
    said = refusals[-1].strip() or "Unable to contact slurm controller" if refusals else ""
    return StepError(failed_nodes=failed, not_created=said)
