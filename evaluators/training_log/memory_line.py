"""Megatron's memory report, one line for each rank of the first data-parallel replica.

    [Rank 25] (after 1 iterations) memory (MB) | allocated: 9334.4 | max allocated: 10606.5 | …

Its MB are 2**20 bytes in every version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from evaluators.training_log.run import PeakMemory

SIGN = ") memory (MB)"
_REPORT = re.compile(
    r"\[Rank ([0-9]{1,7})\] \(after [0-9]{1,12} iterations?\) memory \(MB\)"
    r"(?=[^\[]*?\| max allocated: ([0-9]{1,9}\.[0-9]{1,12}) \| reserved:)?"
    r"(?=[^\[]*?\| max reserved: ([0-9]{1,9}\.[0-9]{1,12})\s*(?:$|\[|\| total device))?"
)
_MIB_PER_GIB = 1024


def memory_reports(text: str) -> Iterator[tuple[int, PeakMemory]]:
    """Rank and peak of each report in a line; ranks that write at once may share one."""
    for found in _REPORT.finditer(text):
        allocated, reserved = _gib(found[2]), _gib(found[3])
        if allocated is not None or reserved is not None:
            peak = PeakMemory(allocated_gib=allocated, reserved_gib=reserved)
            yield int(found[1]), peak


def _gib(megabytes: str | None) -> float | None:
    """None for a number that was cut (it makes no whole bytes), and for a device that tells 0."""
    if megabytes is None:
        return None
    whole = (float(megabytes) * 2**20).is_integer()
    rounded = len(megabytes.partition(".")[2]) == 2
    return float(megabytes) / _MIB_PER_GIB or None if whole or rounded else None
