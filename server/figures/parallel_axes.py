"""The axes of parallel coordinates: the dimensions in which trials differ, memory and rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol

from autotune.schemas.shapes import StrategyShape
from autotune.schemas.wire import TrialPurpose, Wire
from autotune.wording import figure
from search_spaces.dimensions import BY_NAME, Scalar
from server.figures.outcome import Outcome

FAILED_PLACE = -0.12
"""Position of failed trials on the axes of memory and rate."""

LABELLED = 9
"""Maximum number of labels of an axis, including its first and its last."""

MARGIN = 0.45
"""Margin beside the first and the last axis, as a share of the gap between two axes."""

LAST_PX = 48
"""Minimum margin to the right of the last axis, for its values."""

LETTER_PX = 7.2
"""Mean width of a letter of the bold names."""

SPARE_PX = 8
"""Minimum space between two names."""

NARROW_PX = 62
"""Minimum width of an axis; below it names are always slanted."""

SLANT = 40
"""Angle of slanted names, degrees."""

VALUE_DX = 4
"""Distance of the values from their axis, px."""

WIDEST_BAND = 0.12
BAND_OF_A_GAP = 0.3
BAND_OF_A_TRIAL = 0.004
"""Lines through the same value are spread in the order of their rates. Limits of the spread, as a
share of an axis: in all, of the gap between two values, and per trial."""


class AxisTick(Wire):
    """A labelled value of an axis."""

    place: float
    """Its position, from 0 at the bottom to 1 at the top."""
    label: str
    """The value as text."""


class ParallelAxis(Wire):
    """One axis."""

    name: str
    """A dimension, `peak_memory_gib`, or `rate`."""
    title: str
    """Its label."""
    reach: float
    """Half the distance between two values; 0 for memory and rate, which are continuous."""
    ticks: list[AxisTick]
    """Its values in ascending order; round numbers for memory and rate."""


@dataclass(frozen=True, kw_only=True)
class PlottedTrial:
    """A trial that has ended.

    Attributes:
        rate: the objective; None if the trial failed.
        peak_memory_gib: of the fullest GPU; None if it failed or did not report it.
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
    """Positions of axes and their labels, as Vega expressions of the figure's `width`, px, and of
    `datum.after`, the number of axes to the right.

    Attributes:
        slanted: whether the names would overlap if they were not slanted.
        scale: the scale of the axes' positions.
        value_limit: maximum length of a value, which is to the right of its axis.
        title_limit: maximum length of an axis's name.
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
    @property
    def axis(self) -> ParallelAxis: ...

    def words(self, trial: PlottedTrial) -> str:
        """Return the trial's value as text."""
        ...

    def place(self, trial: PlottedTrial) -> float:
        """Return the position of its line on the axis."""
        ...


@dataclass(frozen=True, kw_only=True)
class LevelScale:
    """A dimension, whose values are at equal distances.

    Attributes:
        values: two or more, in ascending order.
        band: spread of lines through the same value.
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
    """Memory or rate, from the lowest to the highest.

    Attributes:
        failed: whether some trials have no value.
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
    """Return the dimensions in which trials differ."""
    every = dict.fromkeys(name for trial in trials for name in trial.strategy.dimensions)
    return [name for name in every if len({t.strategy.value(name) for t in trials}) > 1]


def measured_scales(trials: Sequence[PlottedTrial], *, rate_title: str) -> list[AxisScale]:
    """Return the scales of memory and rate, if any trial has a value."""
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
    """Return all ticks, at most LABELLED of them with a label, evenly spaced."""
    last = len(ticks) - 1
    named = {round(n * last / (LABELLED - 1)) for n in range(LABELLED)}
    return [
        tick if last < LABELLED or n in named else tick.model_copy(update={"label": ""})
        for n, tick in enumerate(ticks)
    ]


def scalar_words(value: Scalar) -> str:
    """Return a dimension's value as text: `on` or `off` for a switch."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def joined(words: Sequence[str]) -> str:
    """Return a list as text: `TP 8, MBS 2 and ZeRO 1`."""
    head = ", ".join(words[:-1])
    return f"{head} and {words[-1]}" if head else words[-1]


def compact(value: float) -> str:
    """Return a number in short: `1.2M`, `168k`, `48`."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{letter}"
    return f"{value:.4g}"


def round_values(low: float, high: float, *, most: int = 6) -> list[float]:
    """Return at most `most` round numbers at equal distances from `low` to `high`; `low` itself if
    they are equal."""
    if high <= low:
        return [low]
    least = (high - low) / most
    size = 10.0 ** math.floor(math.log10(least))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= least)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [n * step for n in range(first, last + 1)]
