"""What a training's log says: its iterations, its settings, and lines that are evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean, median

import numpy as np

TABLE = "a table"
"""The trainer of a run that is a row of a table: it has one time, without warm-up."""
FEWEST_STEPS = 5
"""Iterations after the warm-up below which a run is too short to judge."""
STEADY, FEWEST_STEADY = 1.05, 3
"""Range of times that are steady, of which so many are enough."""
WARM_UP_EXCESS = 1.15
"""Time over the median of all above which the first iterations are warm-up."""
LONGEST_WARM_UP = 20
SPIKE = 1.3
"""Time over the median from which a later iteration is a spike."""
MOST = 10**14
"""Beyond it a number is a slip; models have up to 10^13 parameters."""
DRIFT_STEPS = 12
"""Fewest iterations of which a drift is judged."""


@dataclass(frozen=True, kw_only=True)
class LoggedStep:
    """One report on iterations.

    Attributes:
        number: of the iteration, as the trainer counts.
        time_s: of one iteration; NaN if the log has a rate only.
        tokens_per_s_per_gpu, samples_per_s: the rate, if the log has one instead.
        after: what the log names since the report before: `checkpoint`, `evaluation`, `collection`.
    """

    number: int
    time_s: float = float("nan")
    tokens_per_s_per_gpu: float | None = None
    samples_per_s: float | None = None
    after: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Sign:
    """Lines of one kind: how many there are, and the first."""

    count: int
    line: str


@dataclass(frozen=True, kw_only=True)
class RunLog:
    """The content of one log, or of several files of one run.

    Attributes:
        trainer: whose lines were found; empty without any.
        adapter: name of the adapter that trains with it; empty if there is none.
        steps: reports of the last run in the log.
        stated: what it says of settings, by the names of `formats.toml`.
        arguments: Megatron's own arguments as they stand in it, `--name` -> value.
        signs: kind of evidence -> the lines.
        timers: kind of timer -> its share of an iteration, the median over the run.
        printed_tflops: of each GPU, the median; None if the log has none.
        peak_memory_gib: the largest that it prints.
        runs: how many runs are in it.
    """

    source: str
    trainer: str = ""
    adapter: str = ""
    steps: tuple[LoggedStep, ...] = ()
    stated: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    signs: Mapping[str, Sign] = field(default_factory=dict)
    timers: Mapping[str, float] = field(default_factory=dict)
    printed_tflops: float | None = None
    peak_memory_gib: float | None = None
    runs: int = 1

    def number(self, name: str) -> int | None:
        """Return a stated whole number; None if it is not stated, or no number."""
        try:
            value = float(self.stated[name].replace(",", "").replace("_", ""))
        except (KeyError, ValueError):
            return None
        return int(value) if value == int(value) and 0 < value < MOST else None

    def switch(self, name: str) -> bool | None:
        """Return whether something is on; None if it is not stated."""
        if name not in self.stated:
            return None
        return self.stated[name].lower() not in OFF


OFF = frozenset({"", "0", "0.0", "false", "none", "null", "off", "no", "disabled", "-1"})


@dataclass(frozen=True, kw_only=True)
class StepTimes:
    """Times of a run's iterations, in order, without the warm-up.

    Attributes:
        warm_up: number of reports that were left out.
        spikes: indices of those that are longer than `SPIKE` times the median.
    """

    seconds: tuple[float, ...]
    after: tuple[frozenset[str], ...] = ()
    warm_up: int = 0

    @classmethod
    def of(cls, seconds: Sequence[float], after: Sequence[frozenset[str]] = ()) -> StepTimes:
        usual = median(seconds) if seconds else 0.0
        most = min(LONGEST_WARM_UP, len(seconds) // 2)
        warm = 1 if len(seconds) > 1 else 0
        while warm < most and seconds[warm] > WARM_UP_EXCESS * usual:
            warm += 1
        return cls(seconds=tuple(seconds[warm:]), after=tuple(after[warm:]), warm_up=warm)

    @cached_property
    def median_s(self) -> float:
        return median(self.seconds)

    @property
    def range_s(self) -> tuple[float, float]:
        low, high = np.percentile(self.seconds, [10, 90])
        return float(low), float(high)

    @cached_property
    def spikes(self) -> list[int]:
        return [n for n, each in enumerate(self.seconds) if each > SPIKE * self.median_s]

    def lost_in(self, places: Sequence[int]) -> float:
        """Return the share of the run's time that these iterations take above the median."""
        excess = sum(self.seconds[n] - self.median_s for n in places)
        return excess / (fmean(self.seconds) * len(self.seconds))

    @property
    def drift(self) -> float:
        """Return by how much the last third is slower than the first; 0 for a short run."""
        calm = [each for each in self.seconds if each <= SPIKE * self.median_s]
        if len(calm) < DRIFT_STEPS:
            return 0.0
        third = len(calm) // 3
        return median(calm[-third:]) / median(calm[:third]) - 1.0

    @property
    def is_short(self) -> bool:
        low, high = self.range_s
        return len(self.seconds) < (FEWEST_STEADY if high < STEADY * low else FEWEST_STEPS)
