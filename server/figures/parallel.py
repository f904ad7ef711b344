"""Parallel coordinates: one line per trial through its values, coloured by its rate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, Literal, get_args

from autotune.measurement.objectives import OBJECTIVE_UNITS
from autotune.schemas.figures import FigureTable
from autotune.schemas.trials import Trial
from autotune.schemas.wire import Wire
from autotune.words.dimensions import dimension_head, value_words
from autotune.words.quantities import figure, listed, plural
from search_spaces.dimensions import Scalar, in_order, setting_text
from search_spaces.errors import InvalidInput
from search_spaces.strategy import Strategy
from server.figures.figure import RateFigure, choice
from server.figures.outcome import (
    FAILURES,
    NOT_DRAWN,
    Outcome,
    TrialMark,
    mark_of,
    objective_of,
    outcome_channels,
    thin,
)
from server.figures.source import FigureSource
from server.figures.vega import (
    FIGURE,
    PALETTES,
    Palette,
    Scheme,
    Spec,
    by_value,
    expr,
    finish,
    layer,
    nominal,
    ordinal,
    quantitative,
)

FailedLines = Literal["shown", "hidden"]

LINES = 400
"""Maximum number of lines; of more trials, a sample of each outcome is drawn."""

ALWAYS = 100
"""Number of fastest trials that are always drawn."""

FASTEST = 0.1
"""Share of the successful trials whose common values the caption lists, but at least
LEAST_FASTEST."""

LEAST_FASTEST = 3

HEIGHT_PX = 400
HEAD_PLACE = 1.13
"""Upper end of the chart, above the names of the axes."""

DASHES: Mapping[Outcome, list[int]] = {
    Outcome.OOM: [6, 3],
    Outcome.TIMEOUT: [2, 3],
    Outcome.CRASHED: [9, 3, 2, 3],
    Outcome.OTHER: [1, 4],
}
"""Failures also differ by their dashes."""

RAMPS: Mapping[Scheme, list[float]] = {"light": [0.6, 0.0], "dark": [0.38, 1.0]}
"""The part of viridis, from the slowest to the fastest, that contrasts with the background."""

WEIGHTS = ((60, 2.2, 0.9), (200, 1.6, 0.7), (inf, 1.2, 0.5))
"""Maximum number of lines, their width, px, and their opacity."""

HARDLY = 0.05
"""Opacity of lines outside the brushed ranges."""

BRUSH, OUTSIDE = "brush", "outside"
"""Parameters of the chart, which the page sets: the brushed range of each axis by its key; and, for
each trial outside these ranges, its number with the value `true`. Looking up a number is cheap for
Vega's interpreter."""

FAILED_PLACE = -0.12
"""Position of failed trials on the axes of memory and rate."""

LABELLED = 9
"""Maximum number of labels of an axis, including its first and its last."""

MARGIN = 0.45
"""Margin outside the first and the last axis, as a share of the gap between two axes."""

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
        order: from 0 for the slowest of all trials to 1 for the fastest.
    """

    trial: Trial
    rate: float | None
    order: float

    @property
    def strategy(self) -> Strategy:
        return self.trial.strategy

    @property
    def peak_memory_gib(self) -> float | None:
        ran = self.trial.metrics if self.rate is not None else None
        return ran.peak_memory_gib if ran else None


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
        widest = max([NARROW_PX, *((a + b) / 2 + SPARE_PX for a, b in pairwise(px))])
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
        ordered = tuple(in_order(dimension, values))
        gap = 1.0 / max(len(ordered) - 1, 1)
        band = min(WIDEST_BAND, BAND_OF_A_GAP * gap, BAND_OF_A_TRIAL * len(trials))
        return cls(dimension=dimension, values=ordered, band=band)

    @property
    def axis(self) -> ParallelAxis:
        last = max(len(self.values) - 1, 1)
        ticks = [
            AxisTick(place=level / last, label=setting_text(value))
            for level, value in enumerate(self.values)
        ]
        title = dimension_head(self.dimension)
        return ParallelAxis(name=self.dimension, title=title, reach=0.5 / last, ticks=ticks)

    def words(self, trial: PlottedTrial) -> str:
        return setting_text(trial.strategy.value(self.dimension))

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


AxisScale = LevelScale | MeasuredScale


def differing(trials: Sequence[PlottedTrial]) -> list[str]:
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


class ParallelLine(TrialMark):
    """One trial."""

    rate: float | None
    """Its objective; null if it failed."""
    values: list[str]
    """Its value on each axis, as text."""
    places: list[float]
    """Its position on each axis, from 0 at the bottom to 1 at the top; below 0 if a failed trial
    has no value."""


class ParallelFigure(RateFigure):
    """One line per trial through the dimensions that differ, memory and rate."""

    named = "Parallel coordinates"
    shows = "each trial as a line through its value of every dimension, coloured by its rate"
    filters = ("failed",)

    kind: Literal["parallel"] = "parallel"
    """Kind of figure."""
    axes: list[ParallelAxis]
    """The dimensions that differ, then memory and rate if any trial succeeded."""
    lines: list[ParallelLine]
    """The trials by ascending rate, failed ones first; of thousands, the fastest and a sample of
    each outcome."""
    finished: int
    """Trials that have ended, drawn or not."""

    @classmethod
    def of(cls, source: FigureSource, *, failed: FailedLines = "shown") -> ParallelFigure:
        """Raise InvalidInput if no lines are left without failed trials."""
        unit = OBJECTIVE_UNITS[source.campaign.request.objective]
        finished = _plotted(source)
        ran = [trial for trial in finished if trial.rate is not None]
        can_hide, hidden = bool(differing(ran)), failed == "hidden"
        if hidden and not can_hide:
            raise InvalidInput("failed", failed, "no two trials that ran differ", valid="shown")
        trials = ran if hidden else finished
        scales: list[AxisScale] = [LevelScale.of(name, trials) for name in differing(trials)]
        scales += measured_scales(trials, rate_title=unit)
        axes = [scale.axis for scale in scales]
        every = [_line(each, scales) for each in trials]
        lines = thin(every, keep={each.number for each in every[-ALWAYS:]}, maximum=LINES)
        rows = [[str(line.number), *line.values, line.outcome.value] for line in reversed(lines)]
        share = f" {len(lines):,} are drawn, the fastest among them."
        caption = _caption(finished, hidden=hidden) + (share if len(lines) < len(trials) else "")
        return cls._of_campaign(
            source,
            caption,
            table=FigureTable(
                columns=["Trial", *(axis.title for axis in axes), "Outcome"], rows=rows
            ),
            choices=choice("failed", get_args(FailedLines), failed, label="failed trials")
            if can_hide and len(ran) < len(finished)
            else [],
            axes=axes,
            lines=lines,
            finished=len(finished),
        )

    @classmethod
    def missing(cls, source: FigureSource) -> str:
        trials = _plotted(source)
        if not trials:
            return "no trial has ended yet"
        return "" if differing(trials) else "its trials differ in no dimension"

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        palette = PALETTES[scheme]
        keys, rows = self._keys(), self._rows()
        failed = [row for row in rows if row["rate"] is None]
        ran = [row for row in rows if row["rate"] is not None]
        foot = FAILED_PLACE if failed and ran else -0.05
        layout = AxesLayout.of([axis.title for axis in self.axes])
        x = nominal("axis", axis=None, scale={"domain": keys, **layout.scale})
        extent = {"domain": [foot - 0.04, HEAD_PLACE], "nice": False}
        place = {"x": x, "y": quantitative("place", axis=None, scale=extent)}
        tooltip = [
            ordinal("number", title="trial"),
            nominal("strategy", title="layout"),
            quantitative("rate", title=self.unit, format=FIGURE),
            nominal("outcome", title="outcome"),
        ]

        def through(name: str, *, seen: float, channels: Spec, **look: Any) -> Spec:
            """Return lines through all axes, faint outside the brushed ranges."""
            outside = {"test": f"{OUTSIDE}[datum.number]", "value": HARDLY}
            own = {
                "detail": nominal("number"),
                "strokeOpacity": {"condition": outside, "value": seen},
                "tooltip": tooltip,
            }
            fold = [{"fold": keys, "as": ["axis", "place"]}]
            encoding = place | own | channels
            return layer("line", name, encoding, transform=fold, strokeJoin="round", **look)

        width, seen = next(how for most, *how in WEIGHTS if len(rows) <= most)
        ramp = {"stroke": _ramp(ran, scheme)}
        layers = [
            through("ran", seen=seen, channels=ramp, strokeWidth=width),
            through("best", seen=1.0, channels={}, strokeWidth=3.5, stroke=palette.text),
        ]
        if failed:
            marked = [line.outcome for line in self.lines if line.rate is None]
            outcome = outcome_channels(palette, simulated=self.simulated, drawn=marked)
            dashed = {"color": outcome["color"], "strokeDash": _dashes()}
            thin_px, dim = min(width, 1.4), min(seen, 0.75)
            layers.insert(0, through("failed", seen=dim, channels=dashed, strokeWidth=thin_px))
            look: Spec = {"filled": True, "size": 50, "strokeWidth": 0, "opacity": 1}
            ends = place | outcome | {"tooltip": tooltip}
            layers.append(layer("point", "ends", ends, **look))
        layers = [*_frame(place, palette, foot=foot), *layers, *_names(place, palette, layout)]
        spec = finish(layers, palette, self._data(failed, ran), height=HEIGHT_PX)
        return spec | {"params": [{"name": name, "value": {}} for name in (BRUSH, OUTSIDE)]}

    def _data(
        self, failed: list[dict[str, Any]], ran: list[dict[str, Any]]
    ) -> dict[str, list[dict[str, Any]]]:
        keys = self._keys()
        places = [{"axis": key, "after": after} for after, key in enumerate(reversed(keys))][::-1]
        axes = list(zip(places, self.axes, strict=True))
        return {
            "failed": failed,
            "ran": ran,
            "best": ran[-1:],
            "ends": [row | {"axis": keys[-1], "place": row[keys[-1]]} for row in failed],
            "axes": [
                axis.model_dump(include={"name", "title", "reach"}) | place for place, axis in axes
            ],
            "ticks": [
                tick.model_dump() | place
                for place, axis in axes
                for tick in (labelled(axis.ticks) if axis.reach else axis.ticks)
            ],
        }

    def _keys(self) -> list[str]:
        return [f"at_{number:02}" for number in range(len(self.axes))]

    def _rows(self) -> list[dict[str, Any]]:
        keys = self._keys()
        return [
            line.model_dump(mode="json", include={"number", "outcome", "strategy", "rate"})
            | dict(zip(keys, line.places, strict=True))
            for line in self.lines
        ]


def _plotted(source: FigureSource) -> list[PlottedTrial]:
    """Return the trials that have ended, failed ones first, then by ascending rate; without those
    that stand in for more nodes."""
    objective = source.campaign.request.objective
    ended = [
        (objective_of(trial, objective), trial)
        for trial in source.layouts
        if trial.state not in NOT_DRAWN and trial.stands_for_nodes is None
    ]
    ended.sort(key=lambda each: (each[0] is not None, each[0] or 0.0, -each[1].number))
    return [
        PlottedTrial(trial=trial, rate=rate, order=place / max(len(ended) - 1, 1))
        for place, (rate, trial) in enumerate(ended)
    ]


def _line(trial: PlottedTrial, scales: Sequence[AxisScale]) -> ParallelLine:
    return ParallelLine(
        **mark_of(trial.trial),
        rate=trial.rate,
        values=[scale.words(trial) for scale in scales],
        places=[round(scale.place(trial), 4) for scale in scales],
    )


def _caption(trials: Sequence[PlottedTrial], *, hidden: bool) -> str:
    ran = [trial for trial in trials if trial.rate is not None]
    fewer = len(trials) - len(ran)
    failed = f"{plural(fewer, 'trial')} failed" if fewer else "none failed"
    failed = f"{plural(fewer, 'failed trial')} hidden" if fewer and hidden else failed
    if not ran:
        return f"Nothing has run: {failed}."
    top = ran[-max(LEAST_FASTEST, round(FASTEST * len(ran))) :]
    same = set(differing(ran)) - set(differing(top))
    words = [value_words(n, top[0].strategy.value(n)) for n in differing(ran) if n in same]
    shared = f"all have {listed(words)}" if words else "have no value in common"
    bold = f"the bold line is the fastest, trial {ran[-1].trial.number}"
    if len(top) == len(ran):
        return f"{plural(len(ran), 'trial')} ran, {failed}; {bold}."
    return f"Of {len(ran):,} trials that ran the fastest {len(top)} {shared}; {failed}; {bold}."


def _dashes() -> Spec:
    dashes = by_value([each.value for each in FAILURES], [DASHES[each] for each in FAILURES])
    return nominal("outcome", legend=None, scale=dashes)


def _ramp(ran: Sequence[Mapping[str, Any]], scheme: Scheme) -> Spec:
    rates = [row["rate"] for row in ran] or [0.0]
    colours = {"name": "viridis", "extent": RAMPS[scheme]}
    scale = {"domain": [min(rates), max(rates)], "scheme": colours}
    return quantitative("rate", legend=None, scale=scale)


def _frame(place: Spec, palette: Palette, *, foot: float) -> list[Spec]:
    ends = place | {"y2": {"field": "head"}}
    whole = [{"calculate": str(foot), "as": "place"}, {"calculate": "1.05", "as": "head"}]
    brushed = [
        {"filter": f"{BRUSH}[datum.axis]"},
        {"calculate": f"{BRUSH}[datum.axis][0]", "as": "place"},
        {"calculate": f"{BRUSH}[datum.axis][1]", "as": "head"},
    ]
    part: Spec = {"color": palette.measured, "strokeWidth": 16, "strokeOpacity": 0.35}
    return [
        layer("rule", "axes", ends, transform=whole, color=palette.faint, strokeWidth=1),
        layer("rule", "axes", ends, transform=brushed, **part),
    ]


def _names(place: Spec, palette: Palette, layout: AxesLayout) -> list[Spec]:
    """Return the values of the axes, cut at the next axis, and the names above them, slanted where
    they would overlap. Values are outlined in the background's colour: lines pass behind them."""
    value = place | {"text": nominal("label")}
    left: Spec = {"align": "left", "dx": VALUE_DX, "baseline": "middle", "fontSize": 11}
    left["limit"] = expr(layout.value_limit)
    whole = [nominal("label", title="value")]
    above = [{"calculate": "1.07", "as": "place"}]
    bold: Spec = {"fontSize": 12, "fontWeight": "bold", "baseline": "bottom"}
    slanted: Spec = {
        "align": expr(f"{layout.slanted} ? 'left' : 'center'"),
        "angle": expr(f"{layout.slanted} ? -{SLANT} : 0"),
        "limit": expr(layout.title_limit),
    }
    name = place | {"text": nominal("title")}
    return [
        layer(
            "text", "ticks", value, stroke=palette.card, strokeWidth=3.5, color=palette.card, **left
        ),
        layer("text", "ticks", value | {"tooltip": whole}, color=palette.text, **left),
        layer("text", "axes", name, transform=above, color=palette.text, **bold, **slanted),
    ]
