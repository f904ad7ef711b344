"""Log lines other than iterations: memory, skipped steps, power, DeepSpeed's batch."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from evaluators.training_log.log import MicroBatches, PeakMemory, Power, PowerSample

# Megatron's memory report, one line for each rank of the first data-parallel replica. Its MB are
# 2**20 bytes in every version.
#     [Rank 25] (after 1 iterations) memory (MB) | allocated: 9334.4 | max allocated: 10606.5 | …
MEMORY_SIGN = ") memory (MB)"
_REPORT = re.compile(
    r"\[Rank ([0-9]{1,7})\] \(after [0-9]{1,12} iterations?\) memory \(MB\)"
    r"(?=[^\[]*?\| max allocated: ([0-9]{1,9}\.[0-9]{1,12}) \| reserved:)?"
    r"(?=[^\[]*?\| max reserved: ([0-9]{1,9}\.[0-9]{1,12})\s*(?:$|\[|\| total device))?"
)
_MIB_PER_GIB = 1024


def memory_reports(text: str) -> Iterator[tuple[int, PeakMemory]]:
    """Yield rank and peak of each report in a line; ranks that write at once may share one."""
    for report in _REPORT.finditer(text):
        allocated, reserved = _gib(report[2]), _gib(report[3])
        if allocated is not None or reserved is not None:
            peak = PeakMemory(allocated_gib=allocated, reserved_gib=reserved)
            yield int(report[1]), peak


def _gib(megabytes: str | None) -> float | None:
    """Return GiB; None for 0, and for a cut number, which is not a whole number of bytes."""
    if megabytes is None:
        return None
    whole = (float(megabytes) * 2**20).is_integer()
    rounded = len(megabytes.partition(".")[2]) == 2
    return float(megabytes) / _MIB_PER_GIB or None if whole or rounded else None


# DeepSpeed skipped a step because gradients overflowed, in the wording of all versions. For one
# step the fused optimizer may print two of these; before 0.3 every rank printed it.
_OVERFLOW = re.compile(
    r"(OVERFLOW!|loss scale overflow!|(?<!No )Grad overflow on iteration|Gradient overflow\.)"
    r"(?: Rank ([0-9]{1,7}))?"
)
OVERFLOW_SIGNS = ("OVERFLOW!", "verflow")
MOST_WRITERS = 100_000


class Overflows:
    """Counts the steps that were skipped between iteration lines."""

    def __init__(self) -> None:
        self._reports: Counter[tuple[str, int | None]] = Counter()
        self._before = 0

    def read(self, text: str, *, rank: int | None) -> bool:
        """Count a report of a skipped step; return False for any other line.

        Args:
            rank: of the line's prefix; None without one.
        """
        report = None
        for report in _OVERFLOW.finditer(text):
            key = (report[1], int(report[2]) if report[2] else rank)
            if key in self._reports or len(self._reports) < MOST_WRITERS:
                self._reports[key] += 1
        return report is not None

    def taken(self) -> int:
        """Return the number of steps skipped since the last call."""
        steps = max(self._reports.values(), default=0)
        self._before += steps
        self._reports.clear()
        return steps

    def total(self) -> int:
        """Return the number of all skipped steps."""
        return self._before + max(self._reports.values(), default=0)


POWER_SIGN = "[autotune power] "
_POWER = re.compile(
    r"\[autotune power\] (\S{1,255}) "
    r"(?:([0-9]{1,12}(?:\.[0-9]{1,9})?) ([0-9]{1,9}(?:\.[0-9]{1,6})?)|none(?: (.{1,300}))?)\s*$"
)
MOST_SAMPLES = 200_000
MOST_NODES = 20_000


@dataclass
class _PowerSamples:
    """The samples of one node in three columns."""

    at_s: array[float] = field(default_factory=lambda: array("d"))
    watts: array[float] = field(default_factory=lambda: array("d"))
    after: array[int] = field(default_factory=lambda: array("q"))

    def add(self, at_s: float, watts: float, after: int) -> None:
        self.at_s.append(at_s)
        self.watts.append(watts)
        self.after.append(after)

    def thin(self) -> None:
        """Drop every second one, except the first and last of each iteration."""
        last = len(self.after) - 1
        kept = [
            n
            for n, after in enumerate(self.after)
            if n % 2 == 0 or n == last or {self.after[n - 1], self.after[n + 1]} != {after}
        ]
        self.at_s = array("d", (self.at_s[n] for n in kept))
        self.watts = array("d", (self.watts[n] for n in kept))
        self.after = array("q", (self.after[n] for n in kept))

    def samples(self) -> tuple[PowerSample, ...]:
        rows = zip(self.at_s, self.watts, self.after, strict=True)
        return tuple(PowerSample(at_s=at, watts=watts, after=after) for at, watts, after in rows)


class PowerLines:
    """Collect the sampler's lines in the log's order.

    Args:
        most_samples: above this number, samples are thinned; if that does not help, later ones
            are dropped.
    """

    def __init__(self, *, most_samples: int = MOST_SAMPLES) -> None:
        self._most = most_samples
        self._nodes: dict[str, _PowerSamples] = {}
        self._absent: dict[str, str] = {}
        self._count = 0
        self._full = False

    def read(self, text: str, *, after: int) -> bool:
        """Record a sample after this many iteration lines; return False for any other line."""
        sample = _POWER.search(text)
        if sample is None:
            return False
        node, at_s, watts, reason = sample.groups()
        known = node in self._nodes or node in self._absent
        if not known and len(self._nodes) + len(self._absent) >= MOST_NODES:
            return True
        if at_s is None:
            self._absent[node] = reason or "it does not say why"
        elif self._has_room():
            self._nodes.setdefault(node, _PowerSamples()).add(float(at_s), float(watts), after)
            self._count += 1
        return True

    def _has_room(self) -> bool:
        if self._count >= self._most and not self._full:
            for samples in self._nodes.values():
                samples.thin()
            self._count = sum(len(samples.after) for samples in self._nodes.values())
            # If thinning helps little, it is not repeated for each further sample.
            self._full = self._count > 0.9 * self._most
        return self._count < self._most and not self._full

    def power(self) -> Power:
        """Return all samples so far."""
        return Power(
            samples={node: taken.samples() for node, taken in self._nodes.items()},
            absent=dict(self._absent),
        )


BATCH_SIGN = "CONFIG: micro_batches="
_BATCH = re.compile(r"CONFIG: micro_batches=([0-9]{1,9}) micro_batch_size=([0-9]{1,9})\s*$")


def deepspeeds_batch(text: str) -> MicroBatches | None:
    """Parse the batch line of DeepSpeed's pipeline engine; None for any other or broken line."""
    match = _BATCH.search(text)
    return MicroBatches(count=int(match[1]), size=int(match[2])) if match else None
