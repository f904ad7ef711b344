"""Failures of ranks, and the root cause among them."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.schemas.choices import TrialState
from evaluators.training_log.error_line import (
    ENFORCED,
    OUT_OF_MEMORY,
    CauseKind,
    about_a_connection,
    kind_of,
    out_of_memory,
)

FAILED = 1
LEFT_ALONE = 3
"""Exit codes of a rank: it failed, or only lost its connection to another rank."""
NO_OTHER_NODE = "a fault of the hardware, not of the layout; this machine has no other node to try"


@dataclass(frozen=True, kw_only=True)
class RankFailure:
    """How one rank failed.

    Attributes:
        error: its report, or the signal that ended it.
        at: time of the failure, by the monotonic clock.
        signalled: whether a signal ended it, so it reported nothing.
    """

    rank: int
    error: str
    at: float
    signalled: bool = False

    @property
    def out_of_memory(self) -> bool:
        return out_of_memory(self.error)

    @property
    def consequence(self) -> bool:
        return about_a_connection(self.error)

    def status(self, *, on_cpu: bool) -> TrialState:
        """Return the trial's state if this failure ended it; on a CPU the memory of a layout is the
        host's."""
        kind = kind_of(self.error)
        if kind is CauseKind.HARDWARE:
            return TrialState.NODE_FAIL
        memory = kind is CauseKind.OUT_OF_MEMORY or (on_cpu and kind is CauseKind.HOST_MEMORY)
        return TrialState.OOM if memory else TrialState.CRASHED

    def sentence(self) -> str:
        """Return the trial's error if this failure ended it."""
        if kind_of(self.error) is CauseKind.HARDWARE:
            return f"rank {self.rank}: {self.error} ({NO_OTHER_NODE})"
        where = f"out of memory on rank {self.rank}" if self.out_of_memory else f"rank {self.rank}"
        return f"{where}: {self.error}"


def root_cause(failures: Sequence[RankFailure]) -> RankFailure:
    return min(failures, key=lambda failure: (failure.consequence, failure.at))


def error_line(error: BaseException) -> str:
    text = str(error).split("Exception raised from")[0].split("\nframe #")[0]
    text = ENFORCED.sub("", text)
    return " ".join(f"{type(error).__name__}: {text}".split())[:500]


def ended_by(rank: int, exit_code: int, *, last_words: str, at: float) -> RankFailure:
    """Return the failure of a rank that ended without a report.

    Args:
        exit_code: from `os.waitstatus_to_exitcode`, negative for a signal.
        last_words: the end of the log, which has the reason if C++ code aborted.
    """
    if exit_code >= 0:
        return RankFailure(rank=rank, error=f"exited with {exit_code} and no report", at=at)
    name = signal.Signals(-exit_code).name
    error = f"ended by {name}"
    if -exit_code == signal.SIGKILL:
        error += " (killed by hand, or by the kernel because the machine ran out of RAM)"
    if -exit_code == signal.SIGABRT and (cause := OUT_OF_MEMORY.search(last_words)):
        error += f": {cause[0]}"
    return RankFailure(rank=rank, error=error, at=at, signalled=True)
