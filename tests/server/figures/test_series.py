"""The figures' series against what is worked out otherwise."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import pytest

from autotune.recommendation.projected import all_contenders
from autotune.recommendation.ranking import COSTS
from autotune.schemas.choices import TrialState
from search_spaces.catalog import load_model
from search_spaces.errors import InvalidInput
from search_spaces.fields import as_table
from server.figures.calibration import CalibrationFigure
from server.figures.importance import ImpactFigure
from server.figures.layout_map import LayoutMapFigure
from server.figures.pareto import ParetoFigure
from server.figures.parts import MemoryPartsFigure, PartsFigure
from server.figures.source import FigureSource
from tests.server.figures.conftest import Stages


def test_parts_add_up_and_bars_are_to_scale(done: FigureSource) -> None:
    figure, recommendation = PartsFigure.of(done), done.recommendation
    assert recommendation is not None
    ranked = [recommendation.best, *recommendation.runners_up]
    assert figure.bars[0].total == pytest.approx(100.0)
    for bar, each in zip(figure.bars, ranked, strict=False):
        assert sum(bar.parts.values()) == pytest.approx(bar.total)
        slower = recommendation.best.metrics.tokens_per_s / each.metrics.tokens_per_s
        assert bar.total == pytest.approx(100.0 * slower)
    memory = MemoryPartsFigure.of(done)
    for bar, each in zip(memory.bars, ranked, strict=False):
        assert sum(bar.parts.values()) == pytest.approx(each.metrics.peak_memory_gib)


def test_a_memory_of_some_mebibytes_is_not_rounded_to_nothing(stages: Stages) -> None:
    tiny: dict[str, Any] = {"model": "tiny", "machine": "local", "nodes": 1}
    figure = MemoryPartsFigure.of(
        stages.source(stages.running(ok=2, space={"preset": "tiny-local"}, **tiny))
    )
    assert figure.bars[0].total < 1.0
    *parts, (_, whole, *_) = figure.table.rows
    assert float(whole.split(",")[0]) == pytest.approx(figure.bars[0].total, abs=1e-4)
    assert len(parts) > 1


def test_a_mixture_of_experts_has_its_parts_of_time_and_memory(stages: Stages) -> None:
    """Qwen3-30B-A3B, 32k tokens long and split over GPUs: the ring of keys and values hides behind
    attention, so that it has no part of its own."""
    shape = as_table(load_model("qwen3-30b-a3b"))
    space = {
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "context_parallel": [4, 8],
        "expert_parallel": [16, 32],
        "micro_batch_size": 1,
        "gradient_accumulation_steps": [4, 8],
        "zero_stage": 1,
    }
    long: dict[str, Any] = {"model": {**shape, "seq_length": 32768}, "machine": "dgx-h100"}
    source = stages.source(stages.running(ok=2, space=space, **long))
    time = [row[0] for row in PartsFigure.of(source).table.rows]
    assert {"routed experts", "sending tokens to experts"} <= set(time)
    memory = [row[0] for row in MemoryPartsFigure.of(source).table.rows]
    assert "the experts' weights, gradients and optimizer states" in memory


def test_bars_of_a_chart_leave_nothing_out(done: FigureSource) -> None:
    figure = PartsFigure.of(done)
    rows = figure.chart()["datasets"]["parts"]
    for number, bar in enumerate(figure.bars):
        own = [row for row in rows if row["bar"] == number]
        assert own[0]["from"] == 0.0
        assert own[-1]["to"] == pytest.approx(bar.total)
        assert all(a["to"] == b["from"] for a, b in pairwise(own))


def test_the_largest_impact_is_first_and_shares_add_up(done: FigureSource) -> None:
    bars = ImpactFigure.of(done).bars
    assert [bar.impact for bar in bars] == sorted((bar.impact for bar in bars), reverse=True)
    assert sum(bar.share for bar in bars) == pytest.approx(1.0)
    assert all(bar.low <= bar.impact <= bar.high for bar in bars)


@pytest.mark.parametrize("fixed", [{}, {"num_nodes": 2}, {"micro_batch_size": 1, "num_nodes": 4}])
def test_the_map_has_the_best_that_ran_at_each_place(
    done: FigureSource, fixed: dict[str, Any]
) -> None:
    figure = LayoutMapFigure.of(done, **fixed)
    best: dict[tuple[int, int], float] = {}
    for each in all_contenders(done.campaign, done.trials):
        if all(getattr(each.strategy, name) == value for name, value in fixed.items()):
            place = (each.strategy.tensor_parallel, each.strategy.pipeline_parallel)
            best[place] = max(best.get(place, 0.0), each.rate)
    measured = {(cell.x, cell.y): cell.rate for cell in figure.cells if cell.state == "measured"}
    assert measured == pytest.approx(best)
    assert figure.nodes == [2, 4]
    drawn = {(row["x"], row["y"]) for row in figure.chart()["datasets"]["all"]}
    assert drawn == {(str(cell.x), str(cell.y)) for cell in figure.cells if cell.strategies}


def test_a_map_is_narrowed_to_what_there_is(done: FigureSource) -> None:
    with pytest.raises(InvalidInput, match=r"no layout of this campaign has it.*valid: 2, 4"):
        LayoutMapFigure.of(done, num_nodes=3)


def test_a_map_is_over_dimensions_that_the_space_varies(stages: Stages) -> None:
    space = {"tensor_parallel": 2, "activation_checkpointing": "auto", "zero_stage": [0, 1, 3]}
    source = stages.source(stages.running(ok=12, space=space))
    figure = LayoutMapFigure.of(source, x="activation_checkpointing", y="zero_stage")
    assert figure.title == "Best rate by recomputation and ZeRO"
    assert figure.table.columns[:2] == ["Recompute", "ZeRO"]
    best: dict[tuple[Any, Any], float] = {}
    for each in all_contenders(source.campaign, source.trials):
        place = (each.strategy.activation_checkpointing, each.strategy.zero_stage)
        best[place] = max(best.get(place, 0.0), each.rate)
    ran = {(cell.x, cell.y): cell.rate for cell in figure.cells if cell.state == "measured"}
    assert ran == pytest.approx(best)
    named = {each.name: each for each in figure.choices}
    assert named["x"].value == "activation_checkpointing"
    assert {"tensor_parallel", "micro_batch_size"} < set(named["x"].values)
    assert not {"zero_stage", "num_layers", "precision"} & set(named["x"].values)
    with pytest.raises(InvalidInput, match=r"does not have 2 to 16 values.*valid: tensor_par"):
        LayoutMapFigure.of(source, x="precision")
    with pytest.raises(InvalidInput, match="both axes have the same dimension"):
        LayoutMapFigure.of(source, x="pipeline_parallel")


def test_a_map_of_experts_is_over_ep_and_tp(stages: Stages) -> None:
    space = {"tensor_parallel": [1, 2], "expert_parallel": [8, 16], "zero_stage": 1}
    subject: dict[str, Any] = {"model": "qwen3-30b-a3b", "machine": "dgx-h100", "space": space}
    source = stages.source(stages.running(ok=3, **subject))
    offered = {each.name: each.values for each in LayoutMapFigure.of(source).choices}
    assert "expert_parallel" in offered["x"]
    figure = LayoutMapFigure.of(source, x="expert_parallel", y="tensor_parallel")
    assert figure.title == "Best rate by expert parallelism and TP"
    assert {cell.x for cell in figure.cells} == {8, 16}


def test_a_place_where_all_ran_out_of_memory_says_so(failed: FigureSource) -> None:
    figure = LayoutMapFigure.of(failed)
    full = [cell for cell in figure.cells if cell.state == "out_of_memory"]
    assert full
    assert all(cell.rate is None and cell.out_of_memory for cell in full)


@pytest.mark.parametrize("against", ["num_nodes", "joules_per_token"])
def test_fronts_are_those_of_all_pairs(done: FigureSource, against: str) -> None:
    figure = ParetoFigure.of(done, against=against)  # type: ignore[arg-type]
    points = figure.points
    beaten = set()
    for a, b in combinations(range(len(points)), 2):
        for one, other in ((a, b), (b, a)):
            cost = points[one].cost - points[other].cost
            rate = points[other].tokens_per_s - points[one].tokens_per_s
            if cost >= 0.0 and rate >= 0.0 and (cost or rate):
                beaten.add(one)
    assert {n for n, point in enumerate(points) if not point.on_front} == beaten
    contenders = all_contenders(done.campaign, done.trials)
    cost_of = COSTS[figure.against]
    assert sorted(point.cost for point in points) == sorted(
        value for each in contenders if (value := cost_of(each)) is not None
    )


def test_a_front_that_is_not_offered_is_refused(stages: Stages) -> None:
    source = stages.source(stages.running(ok=4, space={"num_nodes": [4]}))
    assert ParetoFigure.of(source).against == "joules_per_token"
    with pytest.raises(InvalidInput, match=r"do not differ in nodes.*valid: joules_per_token"):
        ParetoFigure.of(source, against="num_nodes")


def test_what_was_predicted_is_held_against_what_came_out(done: FigureSource) -> None:
    """The campaigns of these tests expect 10 s of every trial, within 8 and 12.5 s."""
    figure = CalibrationFigure.of(done)
    times = {t.number: t.metrics.iteration_time_s for t in done.measured if t.metrics}
    timed = {point.number: point for point in figure.points if point.error is not None}
    assert set(timed) == set(times)
    for number, point in timed.items():
        assert point.error == pytest.approx(10.0 * times[number] - 100.0)
        assert (point.low, point.high) == pytest.approx((-20.0, 25.0))
        assert point.within == (8.0 <= times[number] <= 12.5)
    assert figure.covered == sum(8.0 <= seconds <= 12.5 for seconds in times.values())
    failed = [point.number for point in figure.points if point.error is None]
    assert failed == [t.number for t in done.trials if t.state is TrialState.OOM]
