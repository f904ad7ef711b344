"""Parse log lines, whole or broken: iterations, memory, skipped steps, power, DeepSpeed's batch."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import isfinite

from evaluators.training_log.log import Iteration, MicroBatches, PeakMemory, Power, PowerSample

# Megatron's memory report, one line for each rank of the first data-parallel replica. Its MB are
# 2**20 bytes in every version.
#     [Rank 25] (after 1 iterations) memory (MB) | allocated: 9334.4 | max allocated: 10606.5 | …
MEMORY_SIGNS = (") memory (MB)", " mem usage/free/total")
_REPORT = re.compile(
    r"\[Rank ([0-9]{1,7})\] \(after [0-9]{1,12} iterations?\) memory \(MB\)"
    r"(?=[^\[]*?\| max allocated: ([0-9]{1,9}\.[0-9]{1,12}) \| reserved:)?"
    r"(?=[^\[]*?\| max reserved: ([0-9]{1,9}\.[0-9]{1,12})\s*(?:$|\[|\| total device))?"
)
_MIB_PER_GIB = 1024
# Primus: the memory in use of the last rank's GPU, in each of its iteration lines; its GB are GiB.
#     …[rank-7/8]… | hip mem usage/free/total/usage_ratio: 153.81GB/102.17GB/255.98GB/60.09% | …
_IN_USE = re.compile(
    r"\b(?:hip|rocm) mem usage/free/total/usage_ratio: ([0-9]{1,6}\.[0-9]{2})GB/[0-9.]{1,9}GB/"
)
_WRITER = re.compile(r"\brank-([0-9]{1,7})/[0-9]")


def memory_reports(text: str) -> Iterator[tuple[int, PeakMemory]]:
    """Yield rank and peak of each report in a line; ranks that write at once may share one."""
    for report in _REPORT.finditer(text):
        allocated, reserved = _gib(report[2]), _gib(report[3])
        if allocated is not None or reserved is not None:
            peak = PeakMemory(allocated_gib=allocated, reserved_gib=reserved)
            yield int(report[1]), peak
    if in_use := [float(match[1]) for match in _IN_USE.finditer(text)]:
        writer = _WRITER.search(text)
        yield int(writer[1]) if writer else 0, PeakMemory(reserved_gib=max(in_use))


def _gib(megabytes: str | None) -> float | None:
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
    """The samples of one node in two columns."""

    watts: array[float] = field(default_factory=lambda: array("d"))
    after: array[int] = field(default_factory=lambda: array("q"))

    def add(self, watts: float, after: int) -> None:
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
        self.watts = array("d", (self.watts[n] for n in kept))
        self.after = array("q", (self.after[n] for n in kept))

    def samples(self) -> tuple[PowerSample, ...]:
        rows = zip(self.watts, self.after, strict=True)
        return tuple(PowerSample(watts=watts, after=after) for watts, after in rows)


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
            self._nodes.setdefault(node, _PowerSamples()).add(float(watts), after)
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
_MICRO_BATCHES = re.compile(r"CONFIG: micro_batches=([0-9]{1,9}) micro_batch_size=([0-9]{1,9})\s*$")


def deepspeeds_batch(text: str) -> MicroBatches | None:
    match = _MICRO_BATCHES.search(text)
    return MicroBatches(count=int(match[1]), size=int(match[2])) if match else None


# Iterations. All ranks write to one log, so another rank's output may break a line anywhere. A
# value counts only if it fills its field from mark to mark (`| name: value |`) and is followed by
# another field or the end of the line, so a number that was cut in half does not.

# Every Megatron: " iteration        2/       5 | …"; Argonne's: "iteration=       2/  5 | …".
HEAD = re.compile(r"iteration(?: {1,16}| {0,16}= {0,16})([0-9]{1,12})/ {0,12}([0-9]{1,12}) {0,9}\|")
# The bundled trainer: "GAS 4, iteration 2 | 123.4 ms | loss 7.1000000".
OWN = re.compile(
    r"\bGAS ([0-9]{1,9}), iteration ([0-9]{1,9}) \| ([0-9]{1,12}\.[0-9]) ms \|"
    r"(?: loss (nan|-?inf|-?[0-9]{1,12}\.[0-9]{7})(?=\s*$))?"
)
# Each whole line, and each piece with a value of interest, contains one of these.
ITERATION_SIGNS = (
    "iteration  ",
    "iteration=",
    "per iteration",
    "nan iterations",
    "nan_iterations",
    ", iteration ",
)
_DECIMAL = r"[0-9]{1,12}\.[0-9]{1,9}"
_WHOLE = r"[0-9]{1,15}"
_FLOAT = r"-?[0-9]{1,15}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,3})?|(?i:-?nan|-?inf)"
_FIELDS: Mapping[str, str] = {
    r"elapsed time per iteration (?:\(ms\)|ms)": _DECIMAL,
    r"elapsed time per iteration (?:\(s\)|s)": _DECIMAL,
    r"global batch size": _WHOLE,
    r"consumed samples": _WHOLE,
    r"lm loss": _FLOAT,
    r"loss scale": _FLOAT,
    r"grad norm": _FLOAT,
    r"number of skipped iterations": _WHOLE,
    r"number of nan iterations": _WHOLE,
}
# Primus adds the mean after a slash. Megatron-LM's first year has no colon in "loss scale 1.0".
_PATTERNS = {
    name: re.compile(rf"\s*{name}(?:\s*[:=]\s*|\s+)({value})(?:/{_DECIMAL})?\s*")
    for name, value in _FIELDS.items()
}
# The beginning of the next field, known or not.
_FOLLOWING = re.compile(r"\s+\[?[A-Za-z][\w ()/.\]+-]{0,60}?(?:[:=]|\s[0-9])")
_END = "end of line"
_MOST_FIELDS = 100
# The beginning of a line that another rank's output broke, recognised by the padding of its two
# counts, the mark after them, or the text before them; "at iteration       2 to", "epoch: 2/5" and
# "| 5/10 [00:01" do not match.
_BROKEN_HEAD = re.compile(
    r"iteration(?! {1,16}[0-9]{1,12} [a-z])(?: {2}| {0,16}=)|[0-9]/ {2}|/ {2,12}[0-9]"
    r"|[0-9]/ {0,12}[0-9]{1,12} {0,9}\||(?:^|[A-Za-z=]) {0,16}[0-9]{1,12}/ {0,12}[0-9]"
)
_MS, _S, _BATCH, _SAMPLES, _LOSS, _SCALE, _NORM, _SKIPPED, _NAN = _FIELDS


@dataclass(frozen=True, kw_only=True)
class LinePiece:
    """The certain values of a piece of an iteration line.

    Attributes:
        values: as written, by the field's pattern.
        closed: whether it ends like an unbroken line.
        complete: whether it has the last field of interest.
    """

    values: Mapping[str, str]
    closed: bool
    complete: bool

    def goes_on_in(self, later: LinePiece) -> bool:
        return not self.closed and not later.values.keys() & self.values.keys()

    def joined(self, later: LinePiece) -> LinePiece:
        """Return the piece joined with a later one of the same line."""
        return LinePiece(
            values={**self.values, **later.values},
            closed=later.closed,
            complete=self.complete or later.complete,
        )

    def iteration(self, base: Iteration) -> Iteration | None:
        """Return `base` with the certain values; None if the time is not certain."""
        elapsed_s = self._number(_S)
        if _MS in self.values:
            # The nearest float, which a division by 1000 may miss.
            elapsed_s = float(f"{self.values[_MS]}e-3")
        if elapsed_s is None:
            return None
        loss, norm = self._number(_LOSS), self._number(_NORM)
        no_number = any(value is not None and not isfinite(value) for value in (loss, norm))
        return replace(
            base,
            elapsed_s=elapsed_s,
            global_batch_size=self._whole(_BATCH),
            consumed_samples=self._whole(_SAMPLES),
            loss=_finite(loss),
            loss_scale=_finite(self._number(_SCALE)),
            grad_norm=_finite(norm),
            skipped=self._whole(_SKIPPED),
            nan=no_number or bool(self._whole(_NAN)),
        )

    def _number(self, name: str) -> float | None:
        return float(self.values[name]) if name in self.values else None

    def _whole(self, name: str) -> int | None:
        return int(self.values[name]) if name in self.values else None


@dataclass(frozen=True, kw_only=True)
class IterationStart:
    """The beginning of an iteration line, with the unbroken text after it.

    Attributes:
        text: all of it, to recognise a line that was written twice.
    """

    number: int
    of: int | None
    accumulation: int | None
    piece: LinePiece
    text: str


def starts(text: str) -> Iterator[IterationStart]:
    """Yield the iteration lines in one line of a log; several if newlines are missing."""
    heads = list(HEAD.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    for head, end in zip(heads, ends, strict=False):
        yield IterationStart(
            number=int(head[1]),
            of=int(head[2]),
            accumulation=None,
            piece=piece_of(text[head.end() : end]),
            text=text[head.start() : end],
        )
    for own in OWN.finditer(text):
        values = {_MS: own[3]} | ({_LOSS: own[4]} if own[4] else {})
        yield IterationStart(
            number=int(own[2]),
            of=None,
            accumulation=int(own[1]),
            piece=LinePiece(values=values, closed=True, complete=True),
            text=own[0],
        )


def begins_another(text: str) -> bool:
    return _BROKEN_HEAD.search(text) is not None


def piece_of(text: str) -> LinePiece:
    """Return the certain values in `text`, which may begin and end anywhere in an iteration line.

    If a field occurs twice, the first certain value counts.
    """
    values: dict[str, str] = {}
    fields = text.replace("_", " ").split("|", _MOST_FIELDS)
    if not fields[-1].strip():
        fields[-1] = _END
    for this, following in pairwise(fields):
        if following is not _END and not _FOLLOWING.match(following):
            continue
        for name, pattern in _PATTERNS.items():
            if value := pattern.fullmatch(this):
                values.setdefault(name, value[1])
    return LinePiece(values=values, closed=text.rstrip().endswith("|"), complete=_NAN in values)


def _finite(number: float | None) -> float | None:
    return number if number is not None and isfinite(number) else None
