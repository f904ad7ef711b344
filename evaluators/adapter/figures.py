"""The figures of one start, from whatever its ranks and its files tell.

Nothing but the standard library is imported where it runs and nothing newer than Python 3.8 is
used: the text of this module goes along to nodes where this package is not installed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING

from evaluators.adapter.expression import ExpressionFault, Names, Value, parse

if TYPE_CHECKING:
    from evaluators.adapter.adapter import AdapterReader

_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d*)?(?:[eE][-+]?\d+)?")
_NO_NUMBER = frozenset({"nan", "inf", "infinity"})
STAMP_S = 1e-6
"""The unit in which the arrival of lines is told."""
_TRUE = frozenset({"true", "yes", "on", "1"})


def value_of(text: str) -> Value:
    """Return the number that a text is, 1,234.5 among them, and else the text."""
    plain = text.strip().strip("'\"")
    if any(letter.isdigit() for letter in plain) and _NUMBER.fullmatch(plain):
        number = plain.replace(",", "")
        if number.lstrip("+-").isdigit():
            return int(number) if len(number) < 30 else plain
        return float(number) if isfinite(float(number)) else plain
    return plain


@dataclass(frozen=True)
class StartPart:
    """Successive iterations of a start, at one GAS.

    Attributes:
        names: the values of the strategy's names there.
        iterations: that the trainer is asked for; the part after it begins with the next one.
        warmup_iterations: of these, at the beginning: they are left out.
    """

    names: Names
    iterations: int = 0
    warmup_iterations: int = 0

    @property
    def only_warms_up(self) -> bool:
        """Whether none of its iterations is measured."""
        return 0 < self.iterations <= self.warmup_iterations


@dataclass
class ToldIteration:
    """What one rank has told of an iteration; `arrived_s`: when it did so first."""

    step: int
    arrived_s: float | None = None
    time_s: float | None = None
    loss: float | None = None
    nan: bool = False

    def lost(self, loss: Value) -> None:
        """Take a loss, which may be no number; None where none was told."""
        if isinstance(loss, str):
            self.nan |= loss.lower().lstrip("+-") in _NO_NUMBER
        elif loss is not None:
            self.loss = float(loss)


@dataclass
class RankFigures:
    """What one rank has told.

    Attributes:
        latest: the iteration that was told last.
        arrived: by reader, the last line with a step: which, and when it came.
        differs: a name of the strategy, what was asked for, and what the rank says of it.
    """

    iterations: dict[int, ToldIteration] = field(default_factory=dict)
    latest: int | None = None
    arrived: dict[int, tuple[int, float]] = field(default_factory=dict)
    peak_memory_gib: float | None = None
    parameters: float | None = None
    differs: tuple[str, Value, Value] | None = None

    @property
    def timed(self) -> list[ToldIteration]:
        """Iterations with a time, by number."""
        told = sorted(self.iterations.values(), key=lambda each: each.step)
        return [each for each in told if each.time_s is not None]


class StartFigures:
    """Takes what readers find, in its order.

    Args:
        parts: of the start, one after the other.
        echoed: names that a trainer may tell: they must be what was asked for.
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
        self.ranks: dict[int, RankFigures] = {}

    @property
    def clock(self) -> int | None:
        """The lowest rank that tells times: all times are its own."""
        return min((rank for rank, told in self.ranks.items() if told.timed), default=None)

    @property
    def iterations(self) -> list[ToldIteration]:
        """The iterations that one clock has timed, by number."""
        clock = self.clock
        return [] if clock is None else self.ranks[clock].timed

    def measured(self, place: int) -> list[ToldIteration]:
        """Return the timed iterations of a part after its warm-up; the time of one is a mean over
        those since the one that was told before, so all of these are after it."""
        first = self.first_measured(place) + self.apart - 1
        return [i for i in self.iterations if first <= i.step and self.part_of(i.step) == place]

    def first_measured(self, place: int) -> int:
        """Return the number of the first iteration of a part after its warm-up."""
        before = sum(part.iterations for part in self.parts[:place])
        return self.first + before + self.parts[place].warmup_iterations

    def part_of(self, step: int) -> int:
        """Return the place of the part that an iteration is of."""
        before = self.first
        for place, part in enumerate(self.parts[:-1]):
            before += part.iterations
            if step < before:
                return place
        return len(self.parts) - 1

    @property
    def first(self) -> int:
        """The number that the trainer gives its first iteration: 0 or 1."""
        return 0 if self._lowest == 0 else 1

    @property
    def apart(self) -> int:
        """How many iterations lie between two that are told."""
        steps = [i.step for i in self.iterations]
        if len(steps) == 1:
            told = (step for rank in self.ranks.values() for step in rank.iterations)
            steps.insert(0, max((step for step in told if step < steps[0]), default=0))
        gaps = (steps[n] - steps[n - 1] for n in range(1, len(steps)))
        return max(1, min(gaps, default=1))

    @property
    def not_numbers(self) -> frozenset[int]:
        """The iterations whose loss was no number on some rank."""
        told = (each for rank in self.ranks.values() for each in rank.iterations.values())
        return frozenset(each.step for each in told if each.nan)

    @property
    def last_loss(self) -> float | None:
        """The loss that the lowest rank has told last of those that tell any."""
        for _, told in sorted(self.ranks.items()):
            losses = [(i.step, i.loss) for i in told.iterations.values() if i.loss is not None]
            if losses:
                return max(losses)[1]
        return None

    @property
    def parameters(self) -> float | None:
        """The model's size as the lowest rank says of those that do."""
        told = (self.ranks[rank].parameters for rank in sorted(self.ranks))
        return next((each for each in told if each is not None), None)

    @property
    def differs(self) -> tuple[str, Value, Value] | None:
        """The first thing that a rank says of the strategy and that was not asked for."""
        told = (self.ranks[rank].differs for rank in sorted(self.ranks))
        return next(filter(None, told), None)

    def take(
        self, place: int, found: Mapping[str, Value], *, rank: int, at_s: float | None = None
    ) -> bool:
        """Take what the reader at `place` has found; return whether it told a time.

        Args:
            at_s: when it came, seconds of the rank's clock; None where nobody looked.
        """
        reader = self.readers[place]
        told = self.ranks.setdefault(rank, RankFigures())
        step = _figure(_worked_out(reader.step, "step", found, self._names_at(told.latest)))
        if step is not None:
            told.latest = int(step)
            self._lowest = min(told.latest, self._lowest)
        names = self._names_at(told.latest)
        self._compare(reader, found, told, None if step is None else names)
        memory = _figure(_worked_out(reader.peak_memory_gib, "peak_memory_gib", found, names))
        if memory is not None:
            told.peak_memory_gib = max(memory, told.peak_memory_gib or 0.0)
        counted = _figure(_worked_out(reader.parameters, "parameters", found, names))
        told.parameters = told.parameters if counted is None else counted
        if told.latest is None:
            return False
        iteration = told.iterations.setdefault(told.latest, ToldIteration(step=told.latest))
        if step is not None and iteration.arrived_s is None:
            iteration.arrived_s = at_s
        iteration.lost(_worked_out(reader.loss, "loss", found, names))
        time_s = _figure(_worked_out(reader.iteration_time_s, "iteration_time_s", found, names))
        if reader.arrival and step is not None and at_s is not None:
            time_s = _since(told, place, step=int(step), at_s=at_s)
        if time_s is None or time_s <= 0:
            return False
        iteration.time_s = time_s
        return True

    def _names_at(self, step: int | None) -> Names:
        """Return the values of names at an iteration, or before any."""
        return self.parts[0 if step is None else self.part_of(step)].names

    def _compare(
        self,
        reader: AdapterReader,
        found: Mapping[str, Value],
        told: RankFigures,
        names: Names | None,
    ) -> None:
        """Hold what was found under a strategy's names against what was asked for.

        Args:
            names: at the iteration that it is said of; None where it is of the whole start: it may
                then be as in any part.
        """
        echoes = {name: value for name, value in found.items() if name in self._echoed}
        for name, text in reader.echo.items():
            echoes[name] = _worked_out(text, name, found, names or self.parts[0].names)
        meant = [part.names for part in self.parts] if names is None else [names]
        for name, value in echoes.items():
            asked = [each[name] for each in meant]
            if value is None or told.differs is not None:
                continue
            if not any(_same(each, value) for each in asked):
                told.differs = (name, asked[-1], value)


def _worked_out(text: str, name: str, found: Mapping[str, Value], names: Names) -> Value:
    """Return a figure; None where nothing of it was found."""
    if not text:
        return found.get(name)
    expression = parse(text)
    if not expression.names & set(found) and expression.names:
        return None
    try:
        return expression.value({**names, **found})
    except ExpressionFault:
        return None  # the line has other words where it should have numbers


def _figure(value: Value) -> float | None:
    """Return a finite number, and nothing of anything else."""
    return float(value) if isinstance(value, (int, float)) else None


def _same(asked: Value, told: Value) -> bool:
    if isinstance(asked, bool):
        return asked == (str(told).lower() in _TRUE)
    if isinstance(asked, str) or isinstance(told, str):
        return str(asked).lower() == str(told).lower()
    return asked == told


def _since(told: RankFigures, place: int, *, step: int, at_s: float) -> float | None:
    """Return the seconds of an iteration since the last line with a step, of several with the same
    one the first; never none at all, as where a busy machine has read both at once."""
    before = told.arrived.get(place)
    if before is not None and step == before[0]:
        return None
    told.arrived[place] = (step, at_s)
    if before is None or step < before[0]:
        return None
    return max(at_s - before[1], STAMP_S) / (step - before[0])
