"""Why training failed: what errors mean, and the same words for the same cause."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

OUT_OF_MEMORY = re.compile(
    r"out of memory|OutOfMemory|can't allocate memory|Cannot allocate memory"
    r"|not enough memory|\bMemoryError\b|cudaErrorMemoryAllocation|bad_alloc|bad allocation",
    re.IGNORECASE,
)
# Where torch's own source noticed it, which tells a user nothing.
ENFORCED = re.compile(r"\[enforce fail at [^\]]*\](?: err == 0)?[ .]*")
# What the others say when one rank has gone.
CONNECTION = re.compile(
    r"closed by peer|reset by peer|broken pipe"
    r"|connection (was )?(refused|closed|reset|aborted|timed out)"
    r"|connectFullMesh|socket|Timed out waiting|remote process exited|DistNetworkError"
    r"|DistStoreError|TCPStore|ncclRemoteError|unhandled system error|Application timeout|recvValue"
    r"|watchdog|collective operation|NCCL operations have failed|communicator was aborted"
    r"|ChildFailedError|SignalException|failed \(exitcode|exits with return code|KeyboardInterrupt",
    re.IGNORECASE,
)
# About a connection too, and yet the first cause.
OWN_FAULT = re.compile(r"already in use", re.IGNORECASE)
LONGEST = 500


class CauseKind(StrEnum):
    """What sort of failure it was."""

    OUT_OF_MEMORY = "out of memory"
    ERROR = "error"
    TIME_LIMIT = "time limit"
    NODE_FAILURE = "node failure"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    CONSEQUENCE = "consequence"


@dataclass(frozen=True, kw_only=True)
class Cause:
    """The root cause of a failure.

    Attributes:
        error: one line that reads the same from rank to rank and from run to run, as far as
            that is possible: no addresses, process ids, times, job or rank numbers in it.
        kind: `CONSEQUENCE` where the log has nothing but what ranks say when another has gone.
        rank: that said it first, where the line tells.
    """

    error: str
    kind: CauseKind
    rank: int | None = None

    @property
    def out_of_memory(self) -> bool:
        return self.kind is CauseKind.OUT_OF_MEMORY


def out_of_memory(error: str) -> bool:
    """Whether an error says that memory ran out, a device's or the host's."""
    return OUT_OF_MEMORY.search(error) is not None


def about_a_connection(error: str) -> bool:
    """Whether an error only says that another rank has gone."""
    return (
        not out_of_memory(error)
        and CONNECTION.search(error) is not None
        and OWN_FAULT.search(error) is None
    )


# Ranks by the thousand may say the same.
@lru_cache(maxsize=256)
def kind_of(error: str) -> CauseKind:
    """What an exception's text, or another program's error, means."""
    if out_of_memory(error):
        return CauseKind.OUT_OF_MEMORY
    return CauseKind.CONSEQUENCE if about_a_connection(error) else CauseKind.ERROR


# What differs between ranks and runs though the cause is the same; in this order.
_INCIDENTAL = tuple(
    (re.compile(pattern), told)
    for pattern, told in (
        (r"(Tried to allocate [0-9.]+ [KMGT]?i?B)\b.*", r"\1"),
        (r" ?Exception raised from .*", ""),
        (r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?", ""),
        (r"\[?\b[EWIF][0-9]{0,4} [0-9:.]+ [0-9]+ (?=[\w./]+:[0-9]+\])", ""),
        (r"\[(?:PG [^\]]*?)?[Rr]ank ?[0-9]+\]:? ?", ""),
        (r"^\[[EF][0-9 ][^\]]*\]:? *", ""),
        (r"\[[0-9A-Za-z_.:-]+\]:[0-9]{2,5}\b", "…"),
        (r"\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?:[:<][0-9]+>?)?", "…"),
        (r"\(SeqNum=.*?\) ran for [0-9]+ milliseconds", ""),
        (r"\b0x[0-9a-fA-F]+\b", "0x…"),
        (r"\b((?:local_|global_)?[Rr]anks?|RANK|pid|PID|[Pp]rocess|node-|StepId=|JobId=)"
         r"([ =:(]*)\b[0-9][0-9.]*\b", r"\1\2…"),
        (r"\b(cuda|hip|GPU|gpu|device)([ :=]+)[0-9]+\b", r"\1\2…"),
        (r"\s+", " "),
    )
)  # fmt: skip


def plain(error: str) -> str:
    """An error as it reads on every rank and in every run: one line of at most 500 characters."""
    error = ENFORCED.sub("", error)
    for pattern, told in _INCIDENTAL:
        error = pattern.sub(told, error)
    return error.strip()[:LONGEST]
