"""Why a rank failed, and which of several failures is the cause of the others."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.schemas import TrialState
from evaluators.training_log.error_line import (
    ENFORCED,
    OUT_OF_MEMORY,
    about_a_connection,
    out_of_memory,
)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """How one rank ended badly: the error it reported, or the signal that ended it."""

    rank: int
    error: str
    at: float
    signalled: bool = False

    @property
    def out_of_memory(self) -> bool:
        return out_of_memory(self.error)

    @property
    def consequence(self) -> bool:
        """Whether this only says that another rank has gone."""
        return about_a_connection(self.error)

    @property
    def status(self) -> TrialState:
        return TrialState.OOM if self.out_of_memory else TrialState.CRASHED

    def sentence(self) -> str:
        where = f"out of memory on rank {self.rank}" if self.out_of_memory else f"rank {self.rank}"
        return f"{where}: {self.error}"


def root_cause(failures: Sequence[Failure]) -> Failure:
    """The earliest failure that is not about a connection; the earliest of all otherwise."""
    return min(failures, key=lambda f: (f.consequence, f.at))


def error_line(error: BaseException) -> str:
    """Type and message in one line, C++ source lines and stack frames left out."""
    text = str(error).split("Exception raised from")[0].split("\nframe #")[0]
    text = ENFORCED.sub("", text)
    return " ".join(f"{type(error).__name__}: {text}".split())[:500]


def ended_by(rank: int, exit_code: int, *, last_words: str, at: float) -> Failure:
    """The failure of a rank that ended with no report.

    Args:
        exit_code: as of `os.waitstatus_to_exitcode`: negative for a signal.
        last_words: the end of the log, where C++ code that aborts says why.
    """
    if exit_code >= 0:
        return Failure(rank=rank, error=f"exited with {exit_code} and no report", at=at)
    name = signal.Signals(-exit_code).name
    error = f"ended by {name}"
    if -exit_code == signal.SIGKILL:
        error += " (killed by hand, or by the kernel because the machine ran out of RAM)"
    if -exit_code == signal.SIGABRT and (cause := OUT_OF_MEMORY.search(last_words)):
        error += f": {cause[0]}"
    return Failure(rank=rank, error=error, at=at, signalled=True)
