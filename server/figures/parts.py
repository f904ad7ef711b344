"""Time and memory of the best layouts and of the baseline, by part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from autotune.dimension_words import value_words
from autotune.explanation.parts import (
    MEMORY_WORDS,
    TIME_WORDS,
    Origin,
    Role,
    StrategyParts,
    compared_of,
    parts_of,
)
from autotune.explanation.summary import compare
from autotune.resolution import strategy_shape
from autotune.schemas.figures import FigureTable
from autotune.schemas.shapes import StrategyShape
from autotune.schemas.wire import Wire
from autotune.wording import figure
from search_spaces.dimensions import ACCUMULATION, BY_NAME
from search_spaces.strategy import Strategy
from server.figures.figure import DrawnFigure
from server.figures.source import FigureSource
from server.figures.vega import (
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
from server.wording import mark, probability, seconds

LEAST_SHARE = 0.01
"""Parts below this share of the longest bar in all bars are combined."""

LABELLED_SHARE = 0.06
"""Parts from this share of the longest bar on are labelled."""

ROW_PX = 74
BAR_PX = 26
HEAD_LINE_PX = 15
OTHER = "other"
OTHER_COLOUR = ("#b9bec6", "#1c2430")

TIME_COLOURS: Mapping[str, tuple[str, str]] = {
    "products": ("#0072B2", "#ffffff"),
    "attention": ("#56B4E9", "#1c2430"),
    "experts": ("#004c73", "#ffffff"),
    "elementwise": ("#a8d5f2", "#1c2430"),
    "recomputation": ("#009E73", "#ffffff"),
    "tensor_parallel": ("#D55E00", "#1c2430"),
    "context_parallel": ("#f4a582", "#1c2430"),
    "all_to_all": ("#8c3d00", "#ffffff"),
    "bubble": ("#F0E442", "#1c2430"),
    "pipeline_transfer": ("#E69F00", "#1c2430"),
    "data_parallel": ("#CC79A7", "#1c2430"),
    "optimizer": ("#6a51a3", "#ffffff"),
    "host": ("#7a828c", "#ffffff"),
    "stragglers": ("#4a525c", "#ffffff"),
}
MEMORY_COLOURS: Mapping[str, tuple[str, str]] = {
    "parameters": ("#0072B2", "#ffffff"),
    "gradients": ("#56B4E9", "#1c2430"),
    "optimizer": ("#009E73", "#ffffff"),
    "experts": ("#004c73", "#ffffff"),
    "activations": ("#E69F00", "#1c2430"),
    "routed_tokens": ("#8c3d00", "#ffffff"),
    "recomputation": ("#F0E442", "#1c2430"),
    "logits": ("#CC79A7", "#1c2430"),
    "zero3_gather": ("#D55E00", "#1c2430"),
    "overhead": ("#7a828c", "#ffffff"),
}
"""Background and text colour of each part: Okabe and Ito's colours, ordered so that neighbours also
differ in lightness."""

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
    strategy: StrategyShape
    """The strategy."""
    total: float
    """Sum of the parts, in the unit of the figure."""
    origin: Origin
    """Origin of the total."""
    note: str
    """Time of a step, or the probability that a predicted peak fits."""
    parts: dict[str, float]
    """Size of each part, in the unit of the figure."""


class PartsFigure(DrawnFigure):
    """Time per token by part, in per cent of the best strategy's."""

    named = "Where the time goes"
    shows = "the time of the best, its runners-up and the baseline by part"
    rests_on = "calibration"

    kind: Literal["parts"] = "parts"
    """Kind of figure."""
    unit: str
    """What is compared: time, GPU time, node-hours or energy per token."""
    bars: list[ComparedParts]
    """The best, its runners-up and the baseline."""

    @classmethod
    def of(cls, source: FigureSource) -> PartsFigure:
        compared = _compared(source)
        best = compared[0]
        bars = [
            ComparedParts(
                role=each.role,
                name=name,
                strategy=strategy_shape(each.strategy),
                total=100.0 * each.cost / best.cost,
                origin=each.time_origin,
                note=f"{seconds(each.iteration_time_s)} a step",
                parts={
                    part: 100.0 * each.cost / best.cost * share
                    for part, share in each.shares.items()
                },
            )
            for each, name in zip(compared, names(compared), strict=True)
        ]
        others = compare(best, compared[1:])
        # The baseline is last; if it is itself the best, describe the first runner-up instead.
        against = [each for each in others if each.strategy.role == "baseline"] or others
        caption = f"{against[0].sentence}." if against else f"{best.sentence}."
        if best.bubble_note and best.bubble_note not in caption:
            caption = f"{caption} The pipeline's bubble is {best.bubble_note}."
        return cls._of_campaign(
            source,
            caption,
            table=_table(bars, TIME_WORDS, unit="%", simulated=source.campaign.simulated),
            unit=COSTS[source.campaign.request.objective],
            bars=bars,
        )

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        return _bars(
            self.bars,
            TIME_WORDS,
            TIME_COLOURS,
            title=f"{self.unit}, % of the best's",
            unit="%",
            scheme=scheme,
            simulated=self.simulated,
        )


class MemoryPartsFigure(DrawnFigure):
    """Peak memory of the fullest GPU by part, GiB."""

    named = "Where the memory goes"
    shows = "the memory of the same by part, against the limit"
    rests_on = "calibration"

    kind: Literal["memory_parts"] = "memory_parts"
    """Kind of figure."""
    limit_gib: float
    """Usable memory of a GPU, GiB."""
    gpu_memory_gib: float
    """Memory of a GPU, GiB."""
    bars: list[ComparedParts]
    """The best, its runners-up and the baseline."""

    @classmethod
    def of(cls, source: FigureSource) -> MemoryPartsFigure:
        compared = _compared(source)
        best = compared[0]
        bars = [
            ComparedParts(
                role=each.role,
                name=name,
                strategy=strategy_shape(each.strategy),
                total=each.memory_gib,
                origin=each.memory_origin,
                note=""
                if each.memory_origin == "measured"
                else f"{probability(each.fit_probability)} likely to fit",
                parts=dict(each.memory_parts_gib),
            )
            for each, name in zip(compared, names(compared), strict=True)
        ]
        largest = max(best.memory_parts_gib, key=lambda part: best.memory_parts_gib[part])
        share = best.memory_parts_gib[largest] / best.memory_gib
        caption = (
            f"The best takes {figure(best.memory_gib)} of {figure(best.gpu_memory_gib)} GiB, "
            f"{100 * share:.0f} % of it for {MEMORY_WORDS[largest]}; the dashed line is the usable "
            f"memory, {figure(best.memory_limit_gib)} GiB."
        )
        return cls._of_campaign(
            source,
            caption,
            title="Where the memory goes",
            table=_table(bars, MEMORY_WORDS, unit="GiB", simulated=source.campaign.simulated),
            limit_gib=best.memory_limit_gib,
            gpu_memory_gib=best.gpu_memory_gib,
            bars=bars,
        )

    def chart(self, *, scheme: Scheme = "light") -> Spec:
        return _bars(
            self.bars,
            MEMORY_WORDS,
            MEMORY_COLOURS,
            title="peak memory of the fullest GPU, GiB",
            unit="GiB",
            scheme=scheme,
            simulated=self.simulated,
            limit=self.limit_gib,
        )


COSTS = {
    "tokens_per_s": "time for a token",
    "tokens_per_s_per_gpu": "GPU time for a token",
    "tokens_per_node_hour": "node-hours for a token",
    "tokens_per_joule": "energy for a token",
}


def names(compared: Sequence[StrategyParts]) -> list[str]:
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
    """Return a value as in a strategy's line, also if the line would omit it."""
    value, own = strategy.value(dimension), BY_NAME.get(dimension)
    return value_words(dimension, value) if own is None else own.told(value)


def _compared(source: FigureSource) -> list[StrategyParts]:
    assert source.recommendation is not None
    return parts_of(
        compared_of(source.recommendation),
        source.belief.calibration,
        source.belief.transformer,
        objective=source.campaign.request.objective,
    )


def _origin(bar: ComparedParts, *, simulated: bool) -> str:
    """Return the origin of a bar's total; simulated results are not called measured."""
    return mark(simulated) if bar.origin == "measured" else bar.origin


def _table(
    bars: Sequence[ComparedParts], words: Mapping[str, str], *, unit: str, simulated: bool
) -> FigureTable:
    columns = ["Part", *(f"{ROLES[bar.role]}: {bar.name}, {unit}" for bar in bars)]
    rows = [
        [word, *(f"{bar.parts.get(part, 0.0):.1f}" for bar in bars)]
        for part, word in words.items()
        if any(bar.parts.get(part, 0.0) >= 0.05 for bar in bars)
    ]
    total = [
        "whole",
        *(f"{bar.total:.1f}, {_origin(bar, simulated=simulated)}" for bar in bars),
    ]
    return FigureTable(columns=columns, rows=[*rows, total])


def _bars(
    bars: Sequence[ComparedParts],
    words: Mapping[str, str],
    colours: Mapping[str, tuple[str, str]],
    *,
    title: str,
    unit: str,
    scheme: Scheme,
    simulated: bool,
    limit: float | None = None,
) -> Spec:
    """Return one bar per strategy, below its description."""
    palette = PALETTES[scheme]
    longest = max(bar.total for bar in bars)
    shown = [
        name for name in words if any(b.parts.get(name, 0.0) >= LEAST_SHARE * longest for b in bars)
    ]
    rows, heads = _rows(
        bars, shown, words, colours, longest=longest, unit=unit, simulated=simulated
    )
    drawn = [words[name] for name in shown] + [OTHER] * any(r["part"] == OTHER for r in rows)
    grounds = [colours[name][0] for name in shown] + [OTHER_COLOUR[0]]
    span = {"domain": [0.0, max(longest, limit or 0.0)], "nice": False, "padding": 0}
    apart = 1.0 - BAR_PX / ROW_PX
    y = ordinal("bar", axis=None, scale={"paddingInner": apart, "paddingOuter": apart / 2})
    colour = nominal(
        "part",
        title=None,
        sort=drawn,
        scale=by_value(drawn, grounds[: len(drawn)]),
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
        "color": nominal("ink", scale=None),
        "tooltip": tooltip,
    }
    head = {"x": at(0), "y": y, "text": nominal("head")}
    above: Spec = {
        "align": "left",
        "baseline": "bottom",
        "dy": -BAR_PX // 2 - 2 - HEAD_LINE_PX,
        "lineBreak": "\n",
        "lineHeight": HEAD_LINE_PX,
    }
    layers = [
        layer("bar", "parts", segment, stroke=palette.card, strokeWidth=1),
        layer("text", "parts", label, fontSize=11),
        layer("text", "heads", head, color=palette.text, fontSize=12, limit=expr("width"), **above),
    ]
    data = {"parts": rows, "heads": heads}
    if limit is not None:
        layers.append(limit_line("limit", {"x": quantitative("limit", scale=span)}, palette))
        data["limit"] = [{"limit": limit}]
    return finish(layers, palette, data, height=ROW_PX * len(bars))


def _rows(
    bars: Sequence[ComparedParts],
    shown: Sequence[str],
    words: Mapping[str, str],
    colours: Mapping[str, tuple[str, str]],
    *,
    longest: float,
    unit: str,
    simulated: bool,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    heads: list[dict[str, Any]] = []
    for number, bar in enumerate(bars):
        head = f"{ROLES[bar.role]}: {bar.name}"
        whole = f"{bar.total:.0f} %" if unit == "%" else f"{figure(bar.total)} {unit}"
        origin = _origin(bar, simulated=simulated)
        about = ", ".join(filter(None, [ROLES[bar.role], f"{whole} {origin}", bar.note]))
        heads.append({"bar": number, "head": f"{about}\n{bar.name}"})
        parts = {words[name]: (bar.parts.get(name, 0.0), *colours[name]) for name in shown}
        rest = bar.total - sum(value for value, _, _ in parts.values())
        if rest > 1e-9 * bar.total and len(shown) < len(words):
            parts[OTHER] = (rest, *OTHER_COLOUR)
        end = 0.0
        for part, (value, _, ink) in parts.items():
            if value <= 0.0:
                continue
            is_labelled = value >= LABELLED_SHARE * longest
            rows.append(
                {
                    "bar": number,
                    "strategy": head,
                    "part": part,
                    "from": end,
                    "to": end + value,
                    "middle": end + value / 2,
                    "figure": f"{value:.1f} {unit}",
                    "label": f"{value:.0f}" if is_labelled else "",
                    "ink": ink,
                }
            )
            end += value
    return rows, heads
