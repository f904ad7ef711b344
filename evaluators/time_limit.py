"""A trial's time limit: where it is enforced, and how a timeout is recognised.

A cluster has three limits, each a safety net for the previous one:

1. the job script runs the trial's commands under `timeout` (`command_within`), which asks them to
   end at the limit and kills the rest `KILL_AFTER_S` later;
2. Slurm ends the job at its own `--time` (`slurm_minutes`), in whole minutes;
3. a pilot starts no trial that could outlast its allocation (`longest_s`).

On a single machine the trial's supervisor checks `reached`.
"""

from __future__ import annotations

import math
import time

KILL_AFTER_S = 15
"""Seconds that a trial has to end by itself after its limit."""
SLURM_MARGIN_S = 60
"""Seconds between the trial's limit and Slurm's."""
RELEASE_MARGIN_S = 10.0
"""Seconds between the latest end of a trial and the release of its nodes."""

# Exit codes of `timeout`: limit reached; limit reached and commands killed.
_TIMEOUT_CODES = frozenset({124, 137})
_CLOCKS_DIFFER_S = 1.0


def command_within(time_limit_s: float, command: str) -> str:
    return f"timeout --kill-after={KILL_AFTER_S} {time_limit_s:.3f} {command}"


def slurm_minutes(time_limit_s: float) -> int:
    return math.ceil((time_limit_s + SLURM_MARGIN_S) / 60)


def longest_s(time_limit_s: float) -> float:
    return time_limit_s + KILL_AFTER_S + RELEASE_MARGIN_S


def ended_by_limit(exit_code: int, *, duration_s: float, time_limit_s: float) -> bool:
    return exit_code in _TIMEOUT_CODES and duration_s >= time_limit_s - _CLOCKS_DIFFER_S


def reached(started: float, *, time_limit_s: float) -> bool:
    return time.monotonic() - started >= time_limit_s
