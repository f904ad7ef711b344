"""The gains of the knobs that were tried on the best layout, as a forest plot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from autotune.answers.recommendation import SIGN_DIFFERS, knob_rows, knob_sentence, noise
from autotune.schemas.knobs import KnobFindings, KnobResult
from autotune.words.quantities import figure, plural
from search_spaces.dimensions import setting_text
from server.figures.figure import DrawnFigure
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
TOGETHER = "used together"


class KnobsFigure(DrawnFigure):
    """Expected gains with their 80 % intervals, the largest first."""

    named = "Gains of knobs"
    shows = "what each knob gave on the best layout, with an 80 % interval, and which ones to use"

    kind: Literal["knobs"] = "knobs"
    """Kind of figure."""
    findings: KnobFindings
    """What the starts show."""
    noise_floor: float | None
    """Relative difference below which 95 % of pairs of equal starts are; null if not measured."""

    @classmethod
    def of(cls, source: FigureSource) -> KnobsFigure:
        answer = source.recommendation
        assert answer is not None
        assert answer.knobs is not None
        found = answer.knobs
        took = f"{plural(found.starts, 'start')} took {figure(found.node_hours)} node-hours."
        band = noise(answer).replace("noise here", "noise (the band)")
        return cls._of_campaign(
            source,
            " ".join(filter(None, [knob_sentence(found), took, band])),
            table=knob_rows(found),
            findings=found,
            noise_floor=answer.noise_floor,
        )

    @classmethod
    def missing(cls, source: FigureSource) -> str:
        if reason := super().missing(source):
            return reason
        if not source.campaign.request.knobs:
            return "no knobs were tried: the campaign has none"
        answer = source.recommendation
        if answer is None or answer.knobs is None:
            return "no knobs were tried: no start of the best layout with one has ended"
        return ""

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        palette = PALETTES[scheme]
        other = f"at MBS {self.findings.other_micro_batch_size}"
        floor = self.noise_floor or 0.0
        lane: Spec = {"from": -floor, "to": floor, "zero": 0.0}
        rows = [lane | row | {"row": number} for number, row in enumerate(self._rows())]
        known = [row for row in rows if row["gain"] is not None]
        unknown = [row for row in rows if row["gain"] is None]
        others = [
            row | {"of": other, "gain": row["gain_at_other_size"]}
            for row in rows
            if row.get("gain_at_other_size") is not None
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
            "tooltip": [nominal(name, title=name) for name in self.table.columns],
        }
        x = {
            "title": f"gain in rate{'; band: noise' if floor else ''}",
            "axis": {"tickCount": 6, "format": "+~%"},
        }
        gain = mark | {"x": quantitative("gain", **x)}
        span = {"x": quantitative("gain_low", **x), "x2": {"field": "gain_high"}, "y": y}
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

    def _rows(self) -> Iterator[Spec]:
        """Yield a row for each value that was tried, then for those used together, each with the
        cells of its tooltip."""
        found, columns = self.findings, self.table.columns
        for each, cells in zip(found.results, self.table.rows, strict=True):
            row = {"label": _label(each), "of": each.decision}
            yield each.model_dump(mode="json") | row | dict(zip(columns, cells, strict=True))
        if len(found.settings) > 1:
            names = ", ".join(f"{k} = {setting_text(v)}" for k, v in found.settings.items())
            row = {"label": f"{TOGETHER}: {names}", "of": TOGETHER}
            row |= dict.fromkeys(columns, "") | {"Knob": names, "Decision": TOGETHER}
            yield found.model_dump(mode="json") | row


def _looks(palette: Palette, *, other: str) -> dict[str, tuple[str, str]]:
    """Return the colour and the shape of each decision, and of gains at the other size."""
    return {
        "adopted": (palette.confirmed, "diamond"),
        "rejected": (palette.oom, "cross"),
        "not decided": (palette.other, "circle"),
        TOGETHER: (palette.measured, "square"),
        other: (palette.crashed, "triangle-up"),
    }


def _label(each: KnobResult) -> str:
    """Return the head of a row: what was rejected says why, though it may be faster."""
    note = SIGN_DIFFERS if each.sign_differs else each.why if each.decision == "rejected" else ""
    head = f"{each.knob} = {setting_text(each.value)}: {each.decision}"
    return ". ".join(filter(None, [head, note]))
