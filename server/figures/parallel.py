"""Parallel coordinates: one line per trial through its values, coloured by its rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Literal

from autotune.dimension_words import value_words
from autotune.objectives import OBJECTIVE_UNITS
from autotune.schemas.figures import FigureTable
from autotune.schemas.wire import TrialPurpose, Wire
from server.figures.figure import DrawnFigure
from server.figures.outcome import (
    FAILURES,
    NOT_DRAWN,
    Outcome,
    objective_of,
    outcome_channels,
    outcome_of,
    thin,
)
from server.figures.parallel_axes import (
    FAILED_PLACE,
    SLANT,
    VALUE_DX,
    AxesLayout,
    AxisScale,
    LevelScale,
    ParallelAxis,
    PlottedTrial,
    differing,
    joined,
    labelled,
    measured_scales,
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
from server.wording import plural, strategy_line

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

BRUSH, BESIDE = "brush", "beside"
"""Parameters of the chart, which the page sets: the brushed range of each axis by its key; and, for
each trial outside these ranges, its number with the value `true`. Looking up a number is cheap for
Vega's interpreter."""


class ParallelLine(Wire):
    """One trial."""

    number: int
    """The trial."""
    purpose: TrialPurpose
    """Why it was run."""
    outcome: Outcome
    """How it ended."""
    strategy: str
    """The strategy as text."""
    rate: float | None
    """Its objective; null if it failed."""
    values: list[str]
    """Its value on each axis, as text."""
    places: list[float]
    """Its position on each axis, from 0 at the bottom to 1 at the top; below 0 if a failed trial
    has no value."""


class ParallelFigure(DrawnFigure):
    """One line per trial through the dimensions that differ, memory and rate."""

    named = "Parallel coordinates"
    shows = "each trial as a line through its value of every dimension, coloured by its rate"

    kind: Literal["parallel"] = "parallel"
    """Kind of figure."""
    unit: str
    """Unit of the rate."""
    axes: list[ParallelAxis]
    """The dimensions that differ, then memory and rate if any trial succeeded."""
    lines: list[ParallelLine]
    """The trials by ascending rate, failed ones first; of thousands, the fastest and a sample of
    each outcome."""
    finished: int
    """Trials that have ended, drawn or not."""

    @classmethod
    def of(cls, source: FigureSource) -> ParallelFigure:
        unit = OBJECTIVE_UNITS[source.campaign.request.objective]
        trials = _plotted(source)
        drawn = thin(trials, keep={each.number for each in trials[-ALWAYS:]}, maximum=LINES)
        scales: list[AxisScale] = [LevelScale.of(name, trials) for name in differing(trials)]
        scales += measured_scales(trials, rate_title=unit)
        axes = [scale.axis for scale in scales]
        lines = [_line(each, scales) for each in drawn]
        rows = [[str(line.number), *line.values, line.outcome.value] for line in reversed(lines)]
        share = f" {len(drawn):,} are drawn, the fastest among them."
        caption = _caption(trials) + (share if len(drawn) < len(trials) else "")
        return cls._of_campaign(
            source,
            caption,
            table=FigureTable(
                columns=["Trial", *(axis.title for axis in axes), "Outcome"], rows=rows
            ),
            unit=unit,
            axes=axes,
            lines=lines,
            finished=len(trials),
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
            beside = {"test": f"{BESIDE}[datum.number]", "value": HARDLY}
            own = {
                "detail": nominal("number"),
                "strokeOpacity": {"condition": beside, "value": seen},
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
        return spec | {"params": [{"name": name, "value": {}} for name in (BRUSH, BESIDE)]}

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
        """Return one field per axis, whose alphabetical order is that of the axes."""
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
        for trial in source.trials
        if trial.state not in NOT_DRAWN and trial.stands_for_nodes is None
    ]
    ended.sort(key=lambda each: (each[0] is not None, each[0] or 0.0, -each[1].number))
    return [
        PlottedTrial(
            number=trial.number,
            purpose=trial.purpose,
            outcome=outcome_of(trial),
            strategy=trial.strategy,
            rate=rate,
            peak_memory_gib=trial.metrics.peak_memory_gib
            if rate is not None and trial.metrics
            else None,
            order=place / max(len(ended) - 1, 1),
        )
        for place, (rate, trial) in enumerate(ended)
    ]


def _line(trial: PlottedTrial, scales: Sequence[AxisScale]) -> ParallelLine:
    return ParallelLine(
        number=trial.number,
        purpose=trial.purpose,
        outcome=trial.outcome,
        strategy=strategy_line(trial.strategy),
        rate=trial.rate,
        values=[scale.words(trial) for scale in scales],
        places=[round(scale.place(trial), 4) for scale in scales],
    )


def _caption(trials: Sequence[PlottedTrial]) -> str:
    """Return the values that the fastest trials have in common, in a sentence."""
    ran = [trial for trial in trials if trial.rate is not None]
    fewer = len(trials) - len(ran)
    failed = f"{plural(fewer, 'trial')} failed" if fewer else "none failed"
    if not ran:
        return f"Nothing has run: {failed}."
    top = ran[-max(LEAST_FASTEST, round(FASTEST * len(ran))) :]
    same = set(differing(ran)) - set(differing(top))
    words = [value_words(n, top[0].strategy.value(n)) for n in differing(ran) if n in same]
    shared = f"all have {joined(words)}" if words else "have no value in common"
    bold = f"the bold line is the fastest, trial {ran[-1].number}"
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
    """Return the axes and their brushed ranges."""
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
