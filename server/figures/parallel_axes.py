"""The axes of parallel coordinates: one for each dimension in which trials differ, and one for each
figure that was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol

from autotune.schemas import StrategyShape, TrialPurpose, Wire
from autotune.wording import figure
from search_spaces.dimensions import BY_NAME, Scalar
from server.figures.outcome import Outcome

FAILED_PLACE = -0.12
"""Where a failed trial stands on the axes of what is measured: below all values."""

LABELLED = 9
"""Values that an axis names at most, its first and its last among them."""

MARGIN = 0.45
"""Of the gap between two axes: kept free beside the first axis and the last."""

LAST_PX = 48
"""Free to the right of the last axis at the least, for its values."""

LETTER_PX = 7.2
"""Mean width of a letter of the bold names."""

SPARE_PX = 8
"""Between two names side by side."""

NARROW_PX = 62
"""For each axis: below it names are slanted in any case."""

SLANT = 40
"""Degrees by which names rise where they would overlap side by side."""

VALUE_DX = 4
"""From an axis to its values, px."""

WIDEST_BAND = 0.12
BAND_OF_A_GAP = 0.3
BAND_OF_A_TRIAL = 0.004
"""Lines of one value are set apart in the order of their rates: by this share of an axis at most,
of the gap between two values, and for each trial."""


class AxisTick(Wire):
    """A value that is named beside an axis."""

    place: float
    """Where it stands, from 0 at the axis's foot to 1 at its head."""
    label: str
    """The value in a word."""


class ParallelAxis(Wire):
    """One axis."""

    name: str
    """A dimension, `peak_memory_gib`, or `rate`."""
    title: str
    """Its name for people."""
    reach: float
    """Half the way from a value's place to the next one's; 0 where any figure may stand between."""
    ticks: list[AxisTick]
    """Its values, the lowest first; round ones of what is measured."""


@dataclass(frozen=True, kw_only=True)
class PlottedTrial:
    """What is drawn of a trial that has ended.

    Attributes:
        rate: what the campaign optimises; None where the trial failed.
        peak_memory_gib: of the fullest GPU; None where it failed or told nothing.
        order: from 0 for the slowest of all trials to 1 for the fastest.
    """

    number: int
    purpose: TrialPurpose
    outcome: Outcome
    strategy: StrategyShape
    rate: float | None
    peak_memory_gib: float | None
    order: float


@dataclass(frozen=True, kw_only=True)
class AxesLayout:
    """Where axes and their words stand, as expressions of Vega over the figure's `width`, px, and
    over `datum.after`, the number of axes to the right.

    Attributes:
        slanted: whether the axes' names would overlap side by side.
        scale: the scale that places the axes.
        value_limit: length of a value, which stands to the right of its axis.
        title_limit: length of an axis's name.
    """

    slanted: str
    scale: dict[str, Any]
    value_limit: str
    title_limit: str

    @classmethod
    def of(cls, titles: Sequence[str]) -> AxesLayout:
        """Return the layout of axes with these names."""
        px = [LETTER_PX * len(title) for title in titles]
        widest = max(NARROW_PX, *((a + b) / 2 + SPARE_PX for a, b in pairwise(px)))
        slanted = f"(width < {len(titles) * widest:.0f})"
        left = f"(width * {MARGIN / (len(titles) - 1 + 2 * MARGIN):.4f})"
        right = f"max({left}, {LAST_PX}, {slanted} ? 0 : {px[-1] / 2:.0f})"
        gap = f"((width - {left} - {right}) / {max(len(titles) - 1, 1)})"
        beside = f"({right} + datum.after * {gap})"
        return cls(
            slanted=slanted,
            scale={
                "type": "point",
                "padding": 0,
                "range": [{"expr": left}, {"expr": f"width - {right}"}],
            },
            value_limit=f"(datum.after ? {gap} : {right}) - {VALUE_DX + 1}",
            title_limit=f"{slanted} ? {beside} / {math.cos(math.radians(SLANT)):.3f} : width",
        )


class AxisScale(Protocol):
    """Where trials stand on an axis."""

    @property
    def axis(self) -> ParallelAxis: ...

    def words(self, trial: PlottedTrial) -> str:
        """Return the trial's value as a table has it."""
        ...

    def place(self, trial: PlottedTrial) -> float:
        """Return where its line crosses the axis."""
        ...


@dataclass(frozen=True, kw_only=True)
class LevelScale:
    """A dimension, its values at equal distances however far apart they are.

    Attributes:
        values: two or more, the lowest first.
        band: by how much lines of one value are set apart.
    """

    dimension: str
    values: tuple[Scalar, ...]
    band: float

    @classmethod
    def of(cls, dimension: str, trials: Sequence[PlottedTrial]) -> LevelScale:
        values = dict.fromkeys(trial.strategy.value(dimension) for trial in trials)
        said = BY_NAME.get(dimension)
        order = said.values if said is not None and said.is_named else None
        numbers = not any(isinstance(value, str) for value in values)
        ordered = tuple(sorted(values, key=order.index if order else float if numbers else str))
        gap = 1.0 / max(len(ordered) - 1, 1)
        band = min(WIDEST_BAND, BAND_OF_A_GAP * gap, BAND_OF_A_TRIAL * len(trials))
        return cls(dimension=dimension, values=ordered, band=band)

    @property
    def axis(self) -> ParallelAxis:
        last = max(len(self.values) - 1, 1)
        ticks = [
            AxisTick(place=level / last, label=scalar_words(value))
            for level, value in enumerate(self.values)
        ]
        said = BY_NAME.get(self.dimension)
        title = said.head if said else self.dimension
        return ParallelAxis(name=self.dimension, title=title, reach=0.5 / last, ticks=ticks)

    def words(self, trial: PlottedTrial) -> str:
        return scalar_words(trial.strategy.value(self.dimension))

    def place(self, trial: PlottedTrial) -> float:
        level = self.values.index(trial.strategy.value(self.dimension))
        return level / max(len(self.values) - 1, 1) + self.band * (trial.order - 0.5)


@dataclass(frozen=True, kw_only=True)
class MeasuredScale:
    """A figure that was measured, from the lowest to the highest.

    Attributes:
        failed: whether there are trials without it.
    """

    name: Literal["rate", "peak_memory_gib"]
    title: str
    low: float
    high: float
    failed: bool

    @property
    def axis(self) -> ParallelAxis:
        ticks = [
            AxisTick(place=self._place(value), label=compact(value))
            for value in round_values(self.low, self.high)
        ]
        if self.failed:
            ticks.insert(0, AxisTick(place=FAILED_PLACE, label="failed"))
        return ParallelAxis(name=self.name, title=self.title, reach=0.0, ticks=ticks)

    def words(self, trial: PlottedTrial) -> str:
        return figure(getattr(trial, self.name))

    def place(self, trial: PlottedTrial) -> float:
        value: float | None = getattr(trial, self.name)
        return FAILED_PLACE if value is None else self._place(value)

    def _place(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5


def differing(trials: Sequence[PlottedTrial]) -> list[str]:
    """Return the dimensions of which trials have more than one value."""
    every = dict.fromkeys(name for trial in trials for name in trial.strategy.dimensions)
    return [name for name in every if len({t.strategy.value(name) for t in trials}) > 1]


def measured_scales(trials: Sequence[PlottedTrial], *, rate_title: str) -> list[AxisScale]:
    """Return the scales of memory and rate, as far as any trial has told of them."""
    titles: dict[Literal["peak_memory_gib", "rate"], str] = {
        "peak_memory_gib": "GiB",
        "rate": rate_title,
    }
    scales: list[AxisScale] = []
    for name, title in titles.items():
        found = [value for trial in trials if (value := getattr(trial, name)) is not None]
        if found:
            failed, ends = len(found) < len(trials), {"low": min(found), "high": max(found)}
            scales.append(MeasuredScale(name=name, title=title, failed=failed, **ends))
    return scales


def labelled(ticks: Sequence[AxisTick]) -> list[AxisTick]:
    """Return all, of which no more than LABELLED keep their labels, evenly among them."""
    last = len(ticks) - 1
    named = {round(n * last / (LABELLED - 1)) for n in range(LABELLED)}
    return [
        tick if last < LABELLED or n in named else tick.model_copy(update={"label": ""})
        for n, tick in enumerate(ticks)
    ]


def scalar_words(value: Scalar) -> str:
    """Return a dimension's value in a word: a switch is on or off."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def joined(words: Sequence[str]) -> str:
    """Return them in one: `TP 8, MBS 2 and ZeRO 1`."""
    head = ", ".join(words[:-1])
    return f"{head} and {words[-1]}" if head else words[-1]


def compact(value: float) -> str:
    """Return a round figure in few letters: `1.2M`, `168k`, `48`."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def round_values(low: float, high: float, *, most: int = 6) -> list[float]:
    """Return at most so many figures of one or two digits at equal distances from `low` to `high`;
    the figure itself where both are one."""
    if high <= low:
        return [low]
    least = (high - low) / most
    size = 10.0 ** math.floor(math.log10(least))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= least)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [n * step for n in range(first, last + 1)]
