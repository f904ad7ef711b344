"""Metrics of one start, from the output of its ranks, with the prefix of `rank_process`, and its
files.

Its code on nodes uses the standard library and Python 3.8 only: the text of this module is sent to
nodes without this package.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, nan
from typing import TYPE_CHECKING

from evaluators.adapter.expression import ExpressionFault, Names, Value, parse

if TYPE_CHECKING:
    from evaluators.adapter.adapter import AdapterReader

LINE = re.compile(r"\[start (\d{1,6}) rank (\d{1,7}) (\d{1,9}\.\d{6})s\] (.*)", re.DOTALL)
SEARCHED = 4096
"""Characters of a line that patterns are matched against."""
_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d*)?(?:[eE][-+]?\d+)?")
_NO_NUMBER = frozenset({"nan", "inf", "infinity"})
STAMP_S = 1e-6
"""Unit of arrival times."""
_TRUE = frozenset({"true", "yes", "on", "1"})


def value_of(text: str) -> Value:
    """Return a text as a number if it is one, such as 1,234.5; otherwise the text."""
    plain = text.strip().strip("'\"")
    if any(letter.isdigit() for letter in plain) and _NUMBER.fullmatch(plain):
        number = plain.replace(",", "")
        if number.lstrip("+-").isdigit():
            return int(number) if len(number) < 30 else plain
        return float(number) if isfinite(float(number)) else plain
    return plain


def found_in(text: str, pattern: re.Pattern[str]) -> dict[str, Value] | None:
    """Return the groups of a pattern's first match in a line; None without a match."""
    match = pattern.search(text[:SEARCHED])
    if match is None:
        return None
    found = {name: value_of(group) for name, group in match.groupdict("").items()}
    return {name: value for name, value in found.items() if value != ""}


@dataclass(frozen=True)
class StartPart:
    """Successive iterations of a start at one GAS.

    Attributes:
        names: values of the strategy's names at this GAS.
        iterations: number of iterations; the next part begins after them.
        warmup_iterations: number of these, at the beginning, that are not measured.
    """

    names: Names
    iterations: int = 0
    warmup_iterations: int = 0

    @property
    def only_warms_up(self) -> bool:
        return 0 < self.iterations <= self.warmup_iterations


@dataclass
class ReportedIteration:
    """One iteration as reported by one rank; `arrived_s` is the time of its first report.
    `excluded`: it is not measured, as its loss is not finite or a reader excludes it."""

    step: int
    arrived_s: float | None = None
    time_s: float | None = None
    loss: float | None = None
    excluded: bool = False

    def lost(self, loss: Value) -> None:
        """Record a loss, which may not be finite; None if there is none."""
        if isinstance(loss, str):
            self.excluded |= loss.lower().lstrip("+-") in _NO_NUMBER
        elif loss is not None:
            self.loss = float(loss)


@dataclass
class RankFigures:
    """Values reported by one rank.

    Attributes:
        latest: the last iteration reported.
        arrived: by reader, the last line with a step: which step, and its arrival time.
        confirmed: names of the strategy that it reported with the requested value.
        differs: a name of the strategy, the requested value, and the reported one.
    """

    iterations: dict[int, ReportedIteration] = field(default_factory=dict)
    latest: int | None = None
    arrived: dict[int, tuple[int, float]] = field(default_factory=dict)
    peak_memory_gib: float | None = None
    peak_allocated_gib: float | None = None
    parameters: float | None = None
    confirmed: set[str] = field(default_factory=set)
    differs: tuple[str, Value, Value] | None = None

    def raise_peak(self, name: str, gib: Value) -> None:
        if isinstance(gib, (int, float)):
            setattr(self, name, max(float(gib), getattr(self, name) or 0.0))

    @property
    def timed(self) -> list[ReportedIteration]:
        by_step = sorted(self.iterations.values(), key=lambda each: each.step)
        return [each for each in by_step if each.time_s is not None]


class StartFigures:
    """Collects what readers find, in their order.

    Args:
        parts: of the start, in order.
        echoed: names that a trainer may report; the values must be those requested.
    """

    def __init__(
        self,
        readers: Sequence[AdapterReader],
        parts: Sequence[StartPart],
        *,
        echoed: Collection[str],
    ) -> None:
        self.parts = parts
        self.readers, self._echoed = readers, echoed
        self._lowest = 1
        self._excludes_next = False
        self.ranks: dict[int, RankFigures] = {}

    @property
    def clock(self) -> int | None:
        return min((rank for rank, figures in self.ranks.items() if figures.timed), default=None)

    @property
    def iterations(self) -> list[ReportedIteration]:
        clock = self.clock
        return [] if clock is None else self.ranks[clock].timed

    def measured(self, place: int) -> list[ReportedIteration]:
        """Return the timed iterations of a part after its warm-up. The time of an iteration is a
        mean since the previous report, which must not be before the end of the warm-up."""
        first = self.first_measured(place) + self.apart - 1
        return [i for i in self.iterations if first <= i.step and self.part_of(i.step) == place]

    def first_measured(self, place: int) -> int:
        before = sum(part.iterations for part in self.parts[:place])
        return self.first + before + self.parts[place].warmup_iterations

    def part_of(self, step: int) -> int:
        """Return the index of the part that an iteration belongs to."""
        before = self.first
        for place, part in enumerate(self.parts[:-1]):
            before += part.iterations
            if step < before:
                return place
        return len(self.parts) - 1

    @property
    def first(self) -> int:
        return 0 if self._lowest == 0 else 1

    @property
    def apart(self) -> int:
        """Number of iterations between two reports."""
        steps = [i.step for i in self.iterations]
        if len(steps) == 1:
            untimed = (step for rank in self.ranks.values() for step in rank.iterations)
            steps.insert(0, max((step for step in untimed if step < steps[0]), default=0))
        gaps = (steps[n] - steps[n - 1] for n in range(1, len(steps)))
        return max(1, min(gaps, default=1))

    @property
    def excluded(self) -> frozenset[int]:
        every = (each for rank in self.ranks.values() for each in rank.iterations.values())
        return frozenset(each.step for each in every if each.excluded)

    @property
    def losses(self) -> list[float]:
        """The losses of the lowest rank that reports any, by step; NaN for one that is no
        number."""
        for _, reported in sorted(self.ranks.items()):
            iterations = sorted(reported.iterations.values(), key=lambda each: each.step)
            if any(each.loss is not None for each in iterations):
                return [
                    nan if each.loss is None else each.loss
                    for each in iterations
                    if each.excluded or each.loss is not None
                ]
        return []

    @property
    def parameters(self) -> float | None:
        by_rank = (self.ranks[rank].parameters for rank in sorted(self.ranks))
        return next((each for each in by_rank if each is not None), None)

    @property
    def differs(self) -> tuple[str, Value, Value] | None:
        by_rank = (self.ranks[rank].differs for rank in sorted(self.ranks))
        return next(filter(None, by_rank), None)

    @property
    def confirmed(self) -> frozenset[str]:
        return frozenset().union(*(each.confirmed for each in self.ranks.values()))

    def take(
        self, place: int, found: Mapping[str, Value], *, rank: int, at_s: float | None = None
    ) -> bool:
        """Process a match of the reader at `place`; return whether it had a time.

        Args:
            at_s: arrival time in seconds of the rank's clock; None if it was not observed.
        """
        reader = self.readers[place]
        if reader.excludes_next:
            self._excludes_next = True
            return False
        figures = self.ranks.setdefault(rank, RankFigures())
        step = _figure(_worked_out(reader.step, "step", found, self._names_at(figures.latest)))
        if step is not None:
            figures.latest = int(step)
            self._lowest = min(figures.latest, self._lowest)
        names = self._names_at(figures.latest)
        self._compare(reader, found, figures, None if step is None else names)
        for name in ("peak_memory_gib", "peak_allocated_gib"):
            figures.raise_peak(name, _worked_out(getattr(reader, name), name, found, names))
        counted = _figure(_worked_out(reader.parameters, "parameters", found, names))
        figures.parameters = figures.parameters if counted is None else counted
        if figures.latest is None:
            return False
        iteration = figures.iterations.setdefault(
            figures.latest, ReportedIteration(step=figures.latest)
        )
        if step is not None and iteration.arrived_s is None:
            iteration.arrived_s = at_s
        iteration.lost(_worked_out(reader.loss, "loss", found, names))
        time_s = _figure(_worked_out(reader.iteration_time_s, "iteration_time_s", found, names))
        if reader.arrival and step is not None and at_s is not None:
            time_s = _since(figures, place, step=int(step), at_s=at_s)
        if time_s is None or time_s <= 0:
            return False
        iteration.time_s = time_s
        iteration.excluded |= self._excludes_next
        self._excludes_next = False
        return True

    def _names_at(self, step: int | None) -> Names:
        return self.parts[0 if step is None else self.part_of(step)].names

    def _compare(
        self,
        reader: AdapterReader,
        found: Mapping[str, Value],
        figures: RankFigures,
        names: Names | None,
    ) -> None:
        """Compare a reported value of the strategy with the request.

        Args:
            names: at the iteration of the report; None if the report is of the whole start, which
                may then agree with any part.
        """
        echoes = {name: value for name, value in found.items() if name in self._echoed}
        for name, text in reader.echo.items():
            echoes[name] = _worked_out(text, name, found, names or self.parts[0].names)
        parts = [part.names for part in self.parts] if names is None else [names]
        for name, value in echoes.items():
            requested = [each[name] for each in parts]
            if value is None:
                continue
            if any(_same(each, value) for each in requested):
                figures.confirmed.add(name)
            elif figures.differs is None:
                figures.differs = (name, requested[-1], value)


def _worked_out(text: str, name: str, found: Mapping[str, Value], names: Names) -> Value:
    if not text:
        return found.get(name)
    expression = parse(text)
    if not expression.names & set(found) and expression.names:
        return None
    try:
        return expression.value({**names, **found})
    except ExpressionFault:
        return None  # the line has words instead of numbers


def _figure(value: Value) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


def _same(requested: Value, reported: Value) -> bool:
    if isinstance(requested, bool):
        return requested == (str(reported).lower() in _TRUE)
    if isinstance(requested, str) or isinstance(reported, str):
        return str(requested).lower() == str(reported).lower()
    return requested == reported


def _since(figures: RankFigures, place: int, *, step: int, at_s: float) -> float | None:
    """Return the seconds since the previous line with a step; the first of several with the same
    step counts. Never zero, even if a busy machine has read both at once."""
    before = figures.arrived.get(place)
    if before is not None and step == before[0]:
        return None
    figures.arrived[place] = (step, at_s)
    if before is None or step < before[0]:
        return None
    return max(at_s - before[1], STAMP_S) / (step - before[0])
