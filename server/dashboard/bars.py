"""Stacked bars of time and memory, drawn without a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.dimension_words import percent, told_apart
from autotune.explanation import MEMORY_WORDS, time_words
from autotune.resolution import strategy_of
from autotune.schemas import ExplainedStrategy, Explanation
from autotune.wording import figure
from server.wording import mark, probability, seconds, times

ROLES = {"winner": "Best", "runner_up": "Runner-up", "baseline": "Baseline"}

WORTH_A_COLOUR = 0.01
"""A part has its own colour if it reaches this share of some bar; the others are combined."""

REST = "rest"
REST_WORDS = "the rest"
ROOM_FOR_A_LABEL = 9.0
"""Minimum width of a segment with a label, in per cent."""


@dataclass(frozen=True, kw_only=True)
class BarSegment:
    """One part of a bar; `start` and `width` in per cent of the chart's width."""

    part: str
    words: str
    start: float
    width: float
    share: str

    @property
    def label(self) -> str:
        return self.share if self.width >= ROOM_FOR_A_LABEL else ""

    @property
    def middle(self) -> float:
        return self.start + self.width / 2.0


@dataclass(frozen=True, kw_only=True)
class StrategyBar:
    """One strategy's bar. `summary` is for screen readers; `name` is the best's strategy, or how
    another one differs from it."""

    role: str
    name: str
    segments: tuple[BarSegment, ...]
    value: str
    summary: str


@dataclass(frozen=True, kw_only=True)
class BarChart:
    """Bars on one scale.

    Attributes:
        legend: part -> label, in the order of the bars.
        limit: end of the usable memory, in per cent of the width; None for time.
        rows: the same as a table: each part's label and its value for each strategy.
    """

    bars: tuple[StrategyBar, ...]
    legend: Mapping[str, str]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    limit: float | None = None


def time_chart(explanation: Explanation) -> BarChart:
    """Return the time per token of each strategy relative to the slowest; numbers are per step."""
    longest = max((each.relative_cost for each in explanation.strategies), default=1.0)
    return _chart(
        explanation.strategies,
        [each.time_parts_s for each in explanation.strategies],
        lengths=[each.relative_cost / longest for each in explanation.strategies],
        words=time_words(explanation.time_note),
        colours="time",
        values=[_time(each, simulated=explanation.simulated) for each in explanation.strategies],
    )


def memory_chart(explanation: Explanation) -> BarChart:
    """Return the memory of the fullest GPU of each strategy, relative to a GPU's memory."""
    most = max([explanation.gpu_memory_gib, *(each.memory_gib for each in explanation.strategies)])
    return _chart(
        explanation.strategies,
        [each.memory_parts_gib for each in explanation.strategies],
        lengths=[each.memory_gib / most for each in explanation.strategies],
        words=MEMORY_WORDS,
        colours="memory",
        values=[_memory(each, simulated=explanation.simulated) for each in explanation.strategies],
        limit=100.0 * explanation.memory_limit_gib / most,
    )


def _name(strategy: ExplainedStrategy, strategies: Sequence[ExplainedStrategy]) -> str:
    own = strategy_of(strategy.strategy)
    winner, *others = (strategy_of(each.strategy) for each in strategies)
    apart = told_apart(own, winner, among=others)
    return apart if apart and strategy.role != "winner" else own.short()


def _time(each: ExplainedStrategy, *, simulated: bool) -> str:
    """Return the time per token over that of the best, and the time of a step."""
    step = f"{seconds(each.iteration_time_s)} a step"
    step += f", {_origin(each.time_origin, simulated=simulated)}"
    return step if each.role == "winner" else f"{times(each.relative_cost)} the time; {step}"


def _memory(each: ExplainedStrategy, *, simulated: bool) -> str:
    whole = f"{figure(each.memory_gib)} GiB, {_origin(each.memory_origin, simulated=simulated)}"
    if each.memory_origin == "measured":
        return whole
    return f"{whole}, {probability(each.fit_probability)} likely to fit"


def _origin(origin: str, *, simulated: bool) -> str:
    return mark(simulated) if origin == "measured" else origin


def _chart(
    strategies: Sequence[ExplainedStrategy],
    parts: Sequence[Mapping[str, float]],
    *,
    lengths: Sequence[float],
    words: Mapping[str, str],
    colours: str,
    values: Sequence[str],
    limit: float | None = None,
) -> BarChart:
    wholes = [sum(each.values()) for each in parts]
    own = [
        name
        for name in words
        if any(
            each.get(name, 0.0) >= WORTH_A_COLOUR * whole
            for each, whole in zip(parts, wholes, strict=True)
        )
    ]
    shown = [
        {name: each.get(name, 0.0) for name in own}
        | {REST: sum(part for name, part in each.items() if name not in own)}
        for each in parts
    ]
    legend = {name: words[name] for name in own}
    if any(each[REST] > 0.0 for each in shown):
        legend[REST] = REST_WORDS
    bars = [
        StrategyBar(
            role=ROLES[strategy.role],
            name=_name(strategy, strategies),
            segments=_segments(each, legend, length=100.0 * length, colours=colours),
            value=value,
            summary=", ".join(f"{percent(each[name] / whole)} {legend[name]}" for name in legend),
        )
        for strategy, each, length, whole, value in zip(
            strategies, shown, lengths, wholes, values, strict=True
        )
    ]
    every = [(words[name], [each.get(name, 0.0) for each in parts]) for name in words]
    table = [(name, tuple(figure(value) for value in row)) for name, row in every if any(row)]
    return BarChart(
        bars=tuple(bars),
        legend={f"{colours}-{name}": told for name, told in legend.items()},
        limit=limit,
        rows=tuple(table),
    )


def _segments(
    parts: Mapping[str, float], legend: Mapping[str, str], *, length: float, colours: str
) -> tuple[BarSegment, ...]:
    whole, start, segments = sum(parts.values()), 0.0, []
    for name, words in legend.items():
        width = length * parts[name] / whole
        segments.append(
            BarSegment(
                part=f"{colours}-{name}",
                words=words,
                start=start,
                width=width,
                share=percent(parts[name] / whole),
            )
        )
        start += width
    return tuple(segments)
