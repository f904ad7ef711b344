"""The gains of the knobs that were tried on the best layout, as a forest plot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from autotune.answers.recommendation import SIGN_DIFFERS, knob_rows, knob_sentence, noise
from autotune.schemas.knobs import KnobDecision, KnobFindings, KnobResult
from autotune.schemas.wire import Wire
from autotune.words.quantities import figure, plural
from search_spaces.dimensions import Scalar, setting_text
from server.figures.figure import Cells, DrawnFigure, rows_of, tooltip
from server.figures.source import FigureSource
from server.figures.vega import (
    PALETTES,
    Palette,
    Scheme,
    Spec,
    at,
    by_value,
    expr,
    finish,
    layer,
    legend,
    nominal,
    ordinal,
    quantitative,
)

ROW_PX = 46
LANE_PX = 22
LABEL_PX, MARK_PX = -12, 9
"""From the middle of a row to its label and to its mark."""
NO_GAIN = "no gain measured"


class KnobGain(Wire):
    """One value of a knob, or those used together; gains are in per cent of the rate."""

    name: str
    """The knob and its value, or `together`."""
    decision: KnobDecision | Literal["used together"]
    """What follows."""
    gain: float | None
    """Expected gain; null without a successful start."""
    low: float | None
    """Lower end of its 80 % interval."""
    high: float | None
    """Upper end of its 80 % interval."""
    at_other_size: float | None = None
    """Expected gain at the other micro-batch size; null if not measured."""
    sign_differs: bool = False
    """Whether it is probably faster at one micro-batch size and slower at the other."""
    why: str = ""
    """The reason for the decision, in a sentence."""


CELLS: Cells[KnobGain] = {
    "Knob": lambda each: each.name,
    "Decision": lambda each: each.decision,
    "Gain, %": lambda each: _signed(each.gain),
    "80 % interval, %": lambda each: (
        "" if each.low is None else f"{_signed(each.low)} to {_signed(each.high)}"
    ),
    "Gain at the other MBS, %": lambda each: _signed(each.at_other_size),
    "Reason": lambda each: each.why,
}


class KnobsFigure(DrawnFigure):
    """Expected gains with their 80 % intervals, the largest first."""

    named = "Gains of knobs"
    shows = "what each knob gave on the best layout, with an 80 % interval, and which ones to use"

    kind: Literal["knobs"] = "knobs"
    """Kind of figure."""
    gains: list[KnobGain]
    """Each value that was tried, the largest gain first, then all to use together."""
    noise_floor: float | None
    """Difference below which 95 % of pairs of equal starts are, per cent; null if not measured."""
    other_micro_batch_size: int | None
    """Other micro-batch size at which knobs were measured; null: none."""

    @classmethod
    def of(cls, source: FigureSource) -> KnobsFigure:
        answer = source.recommendation
        assert answer is not None
        assert answer.knobs is not None
        found, floor = answer.knobs, answer.noise_floor
        took = f"{plural(found.starts, 'start')} took {figure(found.node_hours)} node-hours."
        band = noise(answer).replace("noise here", "noise (the band)")
        return cls._of_campaign(
            source,
            " ".join(filter(None, [knob_sentence(found), took, band])),
            table=knob_rows(found),
            gains=[*map(_single, found.results), *_together(found)],
            noise_floor=None if floor is None else 100.0 * floor,
            other_micro_batch_size=found.other_micro_batch_size,
        )

    @classmethod
    def missing(cls, source: FigureSource) -> str:
        if reason := super().missing(source):
            return reason
        if not source.campaign.request.knobs:
            return "no knobs were tried: the campaign has none"
        answer = source.recommendation
        if answer is None or answer.knobs is None or not answer.knobs.results:
            return "no knobs were tried: no start of the best layout with one has ended"
        return ""

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        palette = PALETTES[scheme]
        other = f"at MBS {self.other_micro_batch_size}"
        floor = self.noise_floor or 0.0
        lane = {"from": -floor, "to": floor, "zero": 0.0}
        rows = [
            row | lane | {"row": number, "label": _label(each), "of": each.decision}
            for number, (each, row) in enumerate(
                zip(self.gains, rows_of(CELLS, self.gains), strict=True)
            )
        ]
        known = [row for row in rows if row["gain"] is not None]
        unknown = [row for row in rows if row["gain"] is None]
        others = [
            row | {"of": other, "gain": row["at_other_size"]}
            for row in rows
            if row["at_other_size"] is not None
        ]
        drawn = {row["of"] for row in (*rows, *others)}
        looks = {of: look for of, look in _looks(palette, other=other).items() if of in drawn}
        colours, shapes = zip(*looks.values(), strict=True)
        key = {"title": None, "legend": legend(list(looks))}
        y = ordinal("row", axis=None)
        mark = {
            "y": y,
            "color": nominal("of", scale=by_value(list(looks), colours), **key),
            "shape": nominal("of", scale=by_value(list(looks), shapes), **key),
            "tooltip": tooltip(CELLS),
        }
        x = {
            "title": f"gain in rate, %{'; band: noise' if floor else ''}",
            "axis": {"tickCount": 6},
        }
        gain = mark | {"x": quantitative("gain", **x)}
        span = {"x": quantitative("low", **x), "x2": {"field": "high"}, "y": y}
        band = {"x": quantitative("from", **x), "x2": {"field": "to"}, "y": y}
        zero = {"x": quantitative("zero", **x), "y": y}
        label = {"x": at(0), "y": y, "text": nominal("label")}
        below: Spec = {"yOffset": MARK_PX}
        look: Spec = {"filled": True, "size": 90, "opacity": 1, **below}
        head: Spec = {"align": "left", "dy": LABEL_PX, "fontSize": 12, "limit": expr("width")}
        note: Spec = {"text": NO_GAIN, "align": "left", "dx": 18, "dy": MARK_PX}
        layers = [
            layer("rect", "known", band, color=palette.grid, height=LANE_PX, **below),
            layer("tick", "known", zero, color=palette.faint, size=LANE_PX, opacity=1, **below),
            layer("rule", "known", span, color=palette.text, strokeWidth=1.5, **below),
            layer("point", "others", gain, **look),
            layer("point", "known", gain, **look),
            layer("point", "unknown", mark | {"x": at(6)}, **look),
            layer("text", "unknown", {"x": at(0), "y": y}, color=palette.faint, **note),
            layer("text", "rows", label, color=palette.text, **head),
        ]
        data = {
            "rows": rows,
            "known": known,
            "unknown": unknown,
            "others": others,
        }
        return finish(layers, palette, data, height=ROW_PX * len(rows))


def _looks(palette: Palette, *, other: str) -> dict[str, tuple[str, str]]:
    """Return the colour and the shape of each decision, and of gains at the other size."""
    return {
        "adopted": (palette.confirmed, "diamond"),
        "rejected": (palette.oom, "cross"),
        "not decided": (palette.other, "circle"),
        "used together": (palette.measured, "square"),
        other: (palette.crashed, "triangle-up"),
    }


def _label(each: KnobGain) -> str:
    """Return the head of a row: what was rejected says why, though it may be faster."""
    if each.decision == "used together":
        return f"{each.decision}: {each.name}"
    note = SIGN_DIFFERS if each.sign_differs else each.why if each.decision == "rejected" else ""
    return ". ".join(filter(None, [f"{each.name}: {each.decision}", note]))


def _single(each: KnobResult) -> KnobGain:
    return KnobGain(
        name=_named(each.knob, each.value),
        decision=each.decision,
        at_other_size=_per_cent(each.gain_at_other_size),
        sign_differs=each.sign_differs,
        why=each.why,
        **_interval(each),
    )


def _together(found: KnobFindings) -> Iterator[KnobGain]:
    if len(found.settings) > 1:
        names = ", ".join(_named(knob, value) for knob, value in found.settings.items())
        yield KnobGain(name=names, decision="used together", **_interval(found))


def _named(knob: str, value: Scalar) -> str:
    return f"{knob} = {setting_text(value)}"


def _interval(found: KnobResult | KnobFindings) -> dict[str, Any]:
    ends = {"gain": found.gain, "low": found.gain_low, "high": found.gain_high}
    return {name: _per_cent(share) for name, share in ends.items()}


def _per_cent(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+z.1f}"
