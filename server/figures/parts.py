"""Time and memory of the best layouts and of the baseline, by part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from autotune.explanation.parts import (
    MEMORY_WORDS,
    TIME_WORDS,
    compared_of,
    parts_of,
    shares,
)
from autotune.schemas.explanations import ExplainedStrategy, Origin, Role
from autotune.schemas.figures import FigureTable
from autotune.schemas.wire import Wire
from autotune.words.dimensions import value_words
from autotune.words.quantities import figure, mark, probability, seconds
from search_spaces.dimensions import ACCUMULATION, BY_NAME
from search_spaces.strategy import Strategy
from server.figures.figure import DrawnFigure
from server.figures.source import FigureSource
from server.figures.vega import (
    HUES,
    INK,
    PALETTES,
    Scheme,
    Spec,
    at,
    by_value,
    expr,
    finish,
    layer,
    limit_line,
    nominal,
    ordinal,
    quantitative,
)

LEAST_SHARE = 0.01
"""Parts below this share of the longest bar in all bars are combined."""

LABELLED_SHARE = 0.03
"""Share of the longest bar that each digit of a part's label needs."""

ROW_PX = 74
BAR_PX = 26
HEAD_LINE_PX = 15
OTHER = "other"

TIME_HUES: Mapping[str, str] = {
    "products": "blue",
    "attention": "sky",
    "experts": "navy",
    "elementwise": "pale",
    "recomputation": "green",
    "tensor_parallel": "vermilion",
    "context_parallel": "salmon",
    "all_to_all": "brown",
    "bubble": "yellow",
    "pipeline_transfer": "orange",
    "data_parallel": "pink",
    "optimizer": "purple",
    "host": "grey",
    "stragglers": "slate",
}
MEMORY_HUES: Mapping[str, str] = {
    "parameters": "blue",
    "gradients": "sky",
    "optimizer": "green",
    "experts": "navy",
    "activations": "orange",
    "routed_tokens": "brown",
    "recomputation": "yellow",
    "logits": "pink",
    "zero3_gather": "vermilion",
    "fragmentation": "slate",
    "overhead": "grey",
}
"""Hue of each part, ordered so that neighbours also differ in lightness."""

ROLES: Mapping[Role, str] = {
    "winner": "Best",
    "runner_up": "Runner-up",
    "baseline": "Baseline",
}


class ComparedParts(Wire):
    """One strategy's bar; the parts are always predicted."""

    role: Role
    """Role of the strategy in the campaign."""
    name: str
    """How the strategy differs from the others."""
    strategy: Strategy
    """The strategy."""
    total: float
    """Sum of the parts, in the unit of the figure."""
    origin: Origin
    """Origin of the total."""
    note: str
    """Time of a step, or the probability that a predicted peak fits."""
    parts: dict[str, float]
    """Size of each part, in the unit of the figure."""


class BarsFigure(DrawnFigure):
    """One bar of parts for the best, each runner-up and the baseline.

    Attributes:
        words, hues: label and hue of each part, in the order of a bar.
        measure: unit of the parts.
    """

    rests_on = "calibration"
    words: ClassVar[Mapping[str, str]]
    hues: ClassVar[Mapping[str, str]]
    measure: ClassVar[str]

    bars: list[ComparedParts]
    """The best, its runners-up and the baseline."""

    def _bars(self, *, title: str, scheme: Scheme, limit: float | None = None) -> Spec:
        palette, colours = PALETTES[scheme], HUES[scheme]
        longest = max(bar.total for bar in self.bars)
        shown = [
            name
            for name in self.words
            if any(bar.parts.get(name, 0.0) >= LEAST_SHARE * longest for bar in self.bars)
        ]
        grounds = {self.words[name]: colours[self.hues[name]] for name in shown}
        rows = [
            row | {"ground": (grounds | {OTHER: colours["silver"]})[row["part"]]}
            for number, bar in enumerate(self.bars)
            for row in self._rows(number, bar, shown, longest=longest)
        ]
        if any(row["part"] == OTHER for row in rows):
            grounds[OTHER] = colours["silver"]
        heads = [
            {"bar": number, "head": f"{self._about(bar)}\n{bar.name}"}
            for number, bar in enumerate(self.bars)
        ]
        span = {"domain": [0.0, max(longest, limit or 0.0)], "nice": False, "padding": 0}
        apart = 1.0 - BAR_PX / ROW_PX
        y = ordinal("bar", axis=None, scale={"paddingInner": apart, "paddingOuter": apart / 2})
        colour = nominal(
            "part",
            title=None,
            sort=list(grounds),
            scale=by_value(list(grounds), list(grounds.values())),
            legend={
                "columns": expr("width < 460 ? 1 : 3"),
                "labelLimit": expr("width < 460 ? width - 24 : width / 3 - 24"),
            },
        )
        tooltip = [
            nominal("strategy", title="layout"),
            nominal("part", title="part"),
            nominal("figure", title="takes"),
        ]
        segment = {
            "x": quantitative("from", title=title, scale=span, axis={"tickCount": 6}),
            "x2": {"field": "to"},
            "y": y,
            "color": colour,
            "tooltip": tooltip,
        }
        label = {
            "x": quantitative("middle", scale=span),
            "y": y,
            "text": nominal("label"),
            "color": INK,
            "tooltip": tooltip,
        }
        head = {"x": at(0), "y": y, "text": nominal("head")}
        above: Spec = {
            "align": "left",
            "baseline": "bottom",
            "dy": -BAR_PX // 2 - 2 - HEAD_LINE_PX,
            "lineBreak": "\n",
            "lineHeight": HEAD_LINE_PX,
            "limit": expr("width"),
        }
        layers = [
            layer("bar", "parts", segment, stroke=palette.card, strokeWidth=1),
            layer("text", "parts", label, fontSize=11),
            layer("text", "heads", head, color=palette.text, fontSize=12, **above),
        ]
        data = {"parts": rows, "heads": heads}
        if limit is not None:
            layers.append(limit_line("limit", {"x": quantitative("limit", scale=span)}, palette))
            data["limit"] = [{"limit": limit}]
        return finish(layers, palette, data, height=ROW_PX * len(self.bars))

    def _about(self, bar: ComparedParts) -> str:
        is_share = self.measure == "%"
        whole = f"{bar.total:.0f}" if is_share else figure(bar.total)
        origin = _origin(bar, simulated=self.simulated)
        facts = [ROLES[bar.role], f"{whole} {self.measure} {origin}", bar.note]
        return ", ".join(filter(None, facts))

    def _rows(
        self, number: int, bar: ComparedParts, shown: Sequence[str], *, longest: float
    ) -> Iterator[dict[str, Any]]:
        parts = {self.words[name]: bar.parts.get(name, 0.0) for name in shown}
        rest = bar.total - sum(parts.values())
        if rest > 1e-9 * bar.total and len(shown) < len(self.words):
            parts[OTHER] = rest
        end = 0.0
        for part, value in parts.items():
            if value <= 0.0:
                continue
            label = f"{value:.0f}" if longest >= 10.0 else f"{value:#.2g}"
            yield {
                "bar": number,
                "strategy": f"{ROLES[bar.role]}: {bar.name}",
                "part": part,
                "from": end,
                "to": end + value,
                "middle": end + value / 2,
                "figure": f"{figure(value)} {self.measure}",
                "label": label if value >= len(label) * LABELLED_SHARE * longest else "",
            }
            end += value

    @classmethod
    def _table(cls, bars: Sequence[ComparedParts], *, simulated: bool) -> FigureTable:
        columns = ["Part", *(f"{ROLES[bar.role]}: {bar.name}, {cls.measure}" for bar in bars)]
        digits = 1 if max(bar.total for bar in bars) >= 1.0 else 4
        rows = [
            [word, *(f"{bar.parts.get(part, 0.0):.{digits}f}" for bar in bars)]
            for part, word in cls.words.items()
            if any(bar.parts.get(part, 0.0) >= 0.5 * 10**-digits for bar in bars)
        ]
        whole = [f"{bar.total:.{digits}f}, {_origin(bar, simulated=simulated)}" for bar in bars]
        return FigureTable(columns=columns, rows=[*rows, ["whole", *whole]])


class PartsFigure(BarsFigure):
    """Time per token by part, in per cent of the best strategy's."""

    named = "Where the time goes"
    shows = "the time of the best, its runners-up and the baseline by part"
    words, hues, measure = TIME_WORDS, TIME_HUES, "%"

    kind: Literal["parts"] = "parts"
    """Kind of figure."""
    unit: str
    """What is compared: time, GPU time, node-hours or energy per token."""

    @classmethod
    def of(cls, source: FigureSource) -> PartsFigure:
        compared = _compared(source)
        bars = [
            _bar(
                each,
                name,
                total=(total := 100.0 * each.relative_cost),
                origin=each.time_origin,
                note=f"{seconds(each.iteration_time_s)} a step",
                parts={part: total * share for part, share in shares(each).items()},
            )
            for each, name in zip(compared, names(compared), strict=True)
        ]
        # The baseline is last; if it is itself the best, describe the first runner-up instead.
        against = [each for each in compared[1:] if each.role == "baseline"] or compared[1:]
        caption = (against or compared)[0].sentence
        return cls._of_campaign(
            source,
            caption,
            table=cls._table(bars, simulated=source.campaign.simulated),
            unit=COSTS[source.campaign.request.objective],
            bars=bars,
        )

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        return self._bars(title=f"{self.unit}, % of the best's", scheme=scheme)


class MemoryPartsFigure(BarsFigure):
    """Peak memory of the fullest GPU by part, GiB."""

    named = "Where the memory goes"
    shows = "the memory of the same by part, against the limit"
    words, hues, measure = MEMORY_WORDS, MEMORY_HUES, "GiB"

    kind: Literal["memory_parts"] = "memory_parts"
    """Kind of figure."""
    limit_gib: float
    """Usable memory of a GPU, GiB."""
    gpu_memory_gib: float
    """Memory of a GPU, GiB."""

    @classmethod
    def of(cls, source: FigureSource) -> MemoryPartsFigure:
        compared, calibration = _compared(source), source.belief.calibration
        best, gpu_gib = compared[0], calibration.machine.memory_gib
        limit_gib = calibration.parameters.usable_gib(calibration.machine)
        bars = [
            _bar(
                each,
                name,
                total=each.memory_gib,
                origin=each.memory_origin,
                note=""
                if each.memory_origin == "measured"
                else f"{probability(each.fit_probability)} likely to fit",
                parts=each.memory_parts_gib,
            )
            for each, name in zip(compared, names(compared), strict=True)
        ]
        largest = max(best.memory_parts_gib, key=lambda part: best.memory_parts_gib[part])
        share = best.memory_parts_gib[largest] / best.memory_gib
        caption = (
            f"The best takes {figure(best.memory_gib)} of {figure(gpu_gib)} GiB, "
            f"{100 * share:.0f} % of it for {MEMORY_WORDS[largest]}; the dashed line is the usable "
            f"memory, {figure(limit_gib)} GiB."
        )
        return cls._of_campaign(
            source,
            caption,
            table=cls._table(bars, simulated=source.campaign.simulated),
            limit_gib=limit_gib,
            gpu_memory_gib=gpu_gib,
            bars=bars,
        )

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        title = "peak memory of the fullest GPU, GiB"
        return self._bars(title=title, scheme=scheme, limit=self.limit_gib)


COSTS = {
    "tokens_per_s": "time per token",
    "tokens_per_s_per_gpu": "GPU time per token",
    "tokens_per_node_hour": "node-hours per token",
    "tokens_per_joule": "energy per token",
}


def names(compared: Sequence[ExplainedStrategy]) -> list[str]:
    """Return the values in which each strategy differs from the others; a single one in full."""
    strategies = [each.strategy for each in compared]
    differing = [
        name
        for name in dict.fromkeys(name for each in strategies for name in each.dimensions)
        if name != ACCUMULATION and len({strategy.value(name) for strategy in strategies}) > 1
    ]
    if not differing:
        return [strategy.short() for strategy in strategies]
    return [" · ".join(_briefly(name, strategy) for name in differing) for strategy in strategies]


def _briefly(dimension: str, strategy: Strategy) -> str:
    value, own = strategy.value(dimension), BY_NAME.get(dimension)
    return value_words(dimension, value) if own is None else own.short_value(value)


def _compared(source: FigureSource) -> list[ExplainedStrategy]:
    assert source.recommendation is not None
    return parts_of(
        compared_of(source.recommendation),
        source.belief.calibration,
        source.campaign.model,
        objective=source.campaign.request.objective,
    )


def _bar(each: ExplainedStrategy, name: str, **fields: Any) -> ComparedParts:
    return ComparedParts(role=each.role, name=name, strategy=each.strategy, **fields)


def _origin(bar: ComparedParts, *, simulated: bool) -> str:
    return mark(simulated) if bar.origin == "measured" else bar.origin
