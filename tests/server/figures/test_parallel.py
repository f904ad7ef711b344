"""Parallel coordinates: where lines cross the axes, which are drawn, and what the fastest share."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from autotune.schemas.choices import TrialState
from search_spaces.errors import InvalidInput
from search_spaces.fields import as_table
from server.figures.outcome import NOT_DRAWN
from server.figures.parallel import (
    ALWAYS,
    FAILED_PLACE,
    LABELLED,
    LINES,
    AxisTick,
    ParallelFigure,
    labelled,
    round_values,
)
from server.figures.source import FigureSource
from tests.server.figures.scene import drawn_words
from tests.server.figures.subjects import of_layouts

MEASURED = ["peak_memory_gib", "rate"]


def test_a_line_crosses_each_axis_at_its_value(done: FigureSource) -> None:
    figure = ParallelFigure.of(done)
    ended = {t.number: t for t in done.trials if t.state not in NOT_DRAWN}
    shapes = [as_table(t.strategy) for t in ended.values()]
    varying = [name for name in shapes[0] if len({shape[name] for shape in shapes}) > 1]
    assert {axis.name for axis in figure.axes} == {*varying, *MEASURED}
    assert {line.number for line in figure.lines} == set(ended)
    rates = [line.rate for line in figure.lines if line.rate is not None]
    assert rates == sorted(rates)
    for line in figure.lines:
        ran = ended[line.number].state is TrialState.OK
        for axis, place, words in zip(figure.axes, line.places, line.values, strict=True):
            if axis.name == "rate":
                at = (line.rate - rates[0]) / (rates[-1] - rates[0]) if line.rate else FAILED_PLACE
                assert place == pytest.approx(at, abs=1e-4)
            elif axis.name in MEASURED:
                assert (place == FAILED_PLACE) is not ran
            else:
                nearest = min(axis.ticks, key=lambda tick: abs(tick.place - place))
                assert nearest.label == words
                assert words == str(getattr(ended[line.number].strategy, axis.name))


def test_the_fastest_of_many_are_drawn_with_a_share_of_failures(many: FigureSource) -> None:
    figure = ParallelFigure.of(many)
    assert figure.finished == len(many.trials) > LINES + ALWAYS
    assert len(figure.lines) <= LINES + ALWAYS
    rates = sorted(t.metrics.tokens_per_s for t in many.measured if t.metrics)
    assert [line.rate for line in figure.lines[-ALWAYS:]] == rates[-ALWAYS:]
    assert any(line.rate is None for line in figure.lines)


def test_failed_trials_are_hidden(done: FigureSource) -> None:
    shown, figure = ParallelFigure.of(done), ParallelFigure.of(done, failed="hidden")
    ran = [line.number for line in shown.lines if line.rate is not None]
    assert [line.number for line in figure.lines] == ran
    assert len(figure.table.rows) == len(ran) < len(shown.table.rows)
    assert not figure.chart()["datasets"]["failed"]
    assert {tick.label for axis in shown.axes for tick in axis.ticks} >= {"failed"}
    assert "failed" not in {tick.label for axis in figure.axes for tick in axis.ticks}
    hidden = len(shown.lines) - len(ran)
    assert f"{hidden} failed trials hidden;" in figure.caption
    assert [(each.name, each.value) for each in figure.choices] == [("failed", "hidden")]


def test_failed_trials_stay_where_nothing_else_differs() -> None:
    source = of_layouts({"zero_stage": 1}, {"zero_stage": 2}, failing=1)
    figure = ParallelFigure.of(source)
    assert [axis.name for axis in figure.axes] == ["zero_stage"]
    assert figure.choices == []
    assert "ZeRO" in {word.text for word in drawn_words(figure.chart(), width=560)}
    with pytest.raises(InvalidInput, match=r"no two trials that ran differ.*valid: shown"):
        ParallelFigure.of(source, failed="hidden")


def test_it_says_what_the_fastest_share() -> None:
    slow = [{"tensor_parallel": t, "zero_stage": z} for t in (1, 2, 4) for z in (0, 1)]
    fast = [{"micro_batch_size": m, "sequence_parallel": True} for m in (1, 2, 4)]
    figure = ParallelFigure.of(of_layouts(*slow, *fast))
    assert figure.caption == (
        "Of 9 trials that ran the fastest 3 all have TP 8, ZeRO 1 and with sequence parallelism; "
        "none failed; the bold line is the fastest, trial 9."
    )
    sequence = next(axis for axis in figure.axes if axis.name == "sequence_parallel")
    assert [tick.label for tick in sequence.ticks] == ["off", "on"]


def test_an_axis_names_few_of_many_values() -> None:
    ticks = labelled([AxisTick(place=n / 40, label=str(n)) for n in range(41)])
    named = [tick.label for tick in ticks if tick.label]
    assert len(ticks) == 41
    assert (named[0], named[-1], len(named)) == ("0", "40", LABELLED)
    assert round_values(0.9e4, 1.35e4) == [9e3, 1e4, 1.1e4, 1.2e4, 1.3e4]
    assert round_values(3.0, 3.0) == [3.0]


@pytest.mark.parametrize("width", [320, 560, 1240])
def test_no_word_reaches_into_another(width: int) -> None:
    layouts: list[dict[str, Any]] = [
        {"tensor_parallel": 1, "micro_batch_size": 4, "num_nodes": 8},
        {"activation_checkpointing": "selective", "sequence_parallel": True, "precision": "fp16"},
        {"zero_stage": 2, "pipeline_parallel": 4},
    ]
    drawn = drawn_words(ParallelFigure.of(of_layouts(*layouts)).chart(), width=width)
    axes = sorted({word.x for word in drawn})
    free = dict(zip(axes, [*axes[1:], width + 5], strict=True))
    values, names = ([word for word in drawn if bool(word.dx) is of] for of in (True, False))
    assert "selective" in {word.text for word in values}
    for word in values:
        assert word.x + word.dx + word.length <= free[word.x], word
    for left, right in pairwise(names):
        if not left.angle:
            assert left.x + left.length / 2 < right.x - right.length / 2
    assert any(word.angle for word in names) == (width < 1240)
