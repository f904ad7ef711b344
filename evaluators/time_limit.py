"""A trial's time limit: where it is put into force, and how an end by it is recognised.

On a cluster three limits follow each other, and each is a safety net for the one before:

1. the job's script runs the trial's commands under `timeout` (`command_within`), which asks them to
   end at the limit and kills what is left `KILL_AFTER_S` later;
2. Slurm ends the job at its own `--time` (`slurm_minutes`), which knows whole minutes only;
3. in pilot mode no trial starts that could outlast its allocation (`longest_s`).

On this machine the trial's supervisor asks `reached` at each look.
"""

from __future__ import annotations

import math
import time

KILL_AFTER_S = 15
"""How long a trial has after its time limit to end by itself."""
SLURM_MARGIN_S = 60
"""Slurm's own limit comes so much later than the trial's."""
RELEASE_MARGIN_S = 10.0
"""Between the latest end of a trial and the moment when its nodes are free."""

# Of `timeout`: the limit was reached; it was, and the commands had to be killed.
_TIMEOUT_CODES = frozenset({124, 137})
_CLOCKS_DIFFER_S = 1.0


def command_within(time_limit_s: float, command: str) -> str:
    """Return a line of bash that runs `command` for at most so long."""
    return f"timeout --kill-after={KILL_AFTER_S} {time_limit_s:.3f} {command}"


def slurm_minutes(time_limit_s: float) -> int:
    """Return the `--time` of a job whose trial has this limit."""
    return math.ceil((time_limit_s + SLURM_MARGIN_S) / 60)


def longest_s(time_limit_s: float) -> float:
    """Return for how many seconds a trial with this limit can hold its nodes."""
    return time_limit_s + KILL_AFTER_S + RELEASE_MARGIN_S


def ended_by_limit(exit_code: int, *, duration_s: float, time_limit_s: float) -> bool:
    """Whether `timeout` ended the commands, and not they themselves with the same exit code."""
    return exit_code in _TIMEOUT_CODES and duration_s >= time_limit_s - _CLOCKS_DIFFER_S


def reached(started: float, *, time_limit_s: float) -> bool:
    """Whether a trial that started then (monotonic clock) has had its time."""
    return time.monotonic() - started >= time_limit_s
