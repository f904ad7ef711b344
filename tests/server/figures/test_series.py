"""The figures' series against what is worked out otherwise."""

from __future__ import annotations

from datetime import timedelta
from itertools import combinations, pairwise
from typing import Any

import pytest

from autotune.recommendation.projected import all_contenders
from autotune.recommendation.ranking import COSTS
from autotune.resolution import model_shape
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Accumulation
from search_spaces.catalog import load_model
from search_spaces.errors import InvalidInput
from server.figures.importance import BeeswarmFigure, ImpactFigure
from server.figures.layout_map import LayoutMapFigure
from server.figures.pareto import ParetoFigure
from server.figures.parts import MemoryPartsFigure, PartsFigure
from server.figures.source import FigureSource, SpaceBelief
from server.figures.timeline import TimelineFigure, TimelineTrial
from server.figures.trial_marks import CalibrationFigure, MemoryFigure
from tests.server.figures.conftest import Stages
from tests.server.figures.subjects import START, campaign, trial


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


def test_a_mixture_of_experts_has_its_parts_of_time_and_memory(stages: Stages) -> None:
    """Qwen3-30B-A3B, 32k tokens long and split over GPUs: the ring of keys and values hides behind
    attention, so that it has no part of its own."""
    shape = model_shape(load_model("qwen3-30b-a3b")).model_dump(mode="json", exclude_none=True)
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


def test_dots_are_the_strategies_contributions(done: FigureSource) -> None:
    """Over all dimensions they make the strategy's difference from the mean, so their mean is 0."""
    bars, dots = ImpactFigure.of(done).bars, BeeswarmFigure.of(done).dots
    assert {dot.dimension for dot in dots} == {bar.dimension for bar in bars}
    assert [bar.impact for bar in bars] == sorted((bar.impact for bar in bars), reverse=True)
    assert sum(bar.share for bar in bars) == pytest.approx(1.0)
    for bar in bars:
        own = [dot for dot in dots if dot.dimension == bar.dimension]
        assert bar.low <= bar.impact <= bar.high
        assert all(-1.0 <= dot.offset <= 1.0 and 0.0 <= dot.level <= 1.0 for dot in own)
        assert {dot.value for dot in own} <= set(bar.values)


@pytest.mark.parametrize("asked", [{}, {"num_nodes": 2}, {"micro_batch_size": 1, "num_nodes": 4}])
def test_the_map_has_the_best_that_ran_at_each_place(
    done: FigureSource, asked: dict[str, int]
) -> None:
    figure = LayoutMapFigure.of(done, **asked)
    best: dict[tuple[int, int], float] = {}
    for each in all_contenders(done.campaign, done.trials):
        if all(getattr(each.strategy, name) == value for name, value in asked.items()):
            place = (each.strategy.tensor_parallel, each.strategy.pipeline_parallel)
            best[place] = max(best.get(place, 0.0), each.rate)
    measured = {
        (cell.tensor_parallel, cell.pipeline_parallel): cell.rate
        for cell in figure.cells
        if cell.state == "measured"
    }
    assert measured == pytest.approx(best)
    assert figure.nodes == [2, 4]
    assert {
        (row["tensor_parallel"], row["pipeline_parallel"])
        for row in figure.chart()["datasets"]["all"]
    } == {
        (cell.tensor_parallel, cell.pipeline_parallel) for cell in figure.cells if cell.strategies
    }


def test_a_map_is_narrowed_to_what_there_is(done: FigureSource) -> None:
    with pytest.raises(InvalidInput, match=r"no strategy of this campaign has it.*valid: 2, 4"):
        LayoutMapFigure.of(done, num_nodes=3)


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


def test_memory_left_is_measured_and_of_failures_predicted(done: FigureSource) -> None:
    figure = MemoryFigure.of(done)
    for point, ran in zip(figure.points, done.trials, strict=True):
        if ran.metrics is None:
            assert point.headroom_gib == pytest.approx(64.0 - 40.0)
        else:
            assert point.headroom_gib == pytest.approx(64.0 - max(ran.peak_memory_gib_by_rank))


def overlap(one: TimelineTrial, other: TimelineTrial) -> bool:
    apart = one.first_node + one.num_nodes <= other.first_node
    apart |= other.first_node + other.num_nodes <= one.first_node
    return not apart and one.started_s < other.ended_s and other.started_s < one.ended_s


def test_no_node_has_two_trials_at_once(done: FigureSource) -> None:
    figure = TimelineFigure.of(done)
    assert figure.replayed
    assert not any(overlap(*pair) for pair in combinations(figure.trials, 2))
    held = sum(trial.node_hours or 0.0 for trial in done.trials)
    assert figure.utilisation * figure.nodes * figure.span_s / 3600.0 == pytest.approx(held)
    assert 0.0 < figure.training < figure.utilisation <= 1.0
    for each in figure.trials:
        assert 0.0 <= each.asked_s <= each.started_s <= each.trained_s <= each.ended_s


def test_real_trials_stand_where_they_waited_and_ran() -> None:
    """Two trials of two nodes each on a pool of four: the second waits for a minute."""
    shown = campaign(simulated=False)
    request = shown.request.model_copy(update={"pool_nodes": 4})
    timed = Accumulation(
        gradient_accumulation_steps=4,
        global_batch_size=8,
        iteration_time_s=10.0,
        tokens_per_s=1.0,
        measured=True,
        iteration_times_s=[10.0, 10.0],
    )
    real: dict[str, Any] = {"simulated": False, "accumulations": [timed]}
    minute = timedelta(minutes=1)
    trials = [
        trial(1, 10.0, duration_s=60.0, **real),
        trial(2, 10.0, started_at=START + minute, duration_s=60.0, **real),
        trial(3, None, started_at=START + minute, duration_s=30.0, simulated=False),
    ]
    shown = shown.model_copy(update={"request": request})
    figure = TimelineFigure.of(
        FigureSource(campaign=shown, trials=trials, belief=SpaceBelief.of(shown, trials))
    )
    assert not figure.replayed
    places = [(t.first_node, t.asked_s, t.started_s, t.trained_s, t.ended_s) for t in figure.trials]
    assert places == [
        (0, 0.0, 0.0, 40.0, 60.0),
        (0, 0.0, 60.0, 100.0, 120.0),
        (2, 0.0, 60.0, 90.0, 90.0),
    ]
    assert figure.utilisation == pytest.approx((60 + 60 + 30) * 2 / (4 * 120))
    assert figure.training == pytest.approx((20 + 20) * 2 / (4 * 120))
    phases = {(row["number"], row["phase"]) for row in figure.chart()["datasets"]["phases"]}
    assert (2, "waiting for nodes") in phases
    assert (1, "waiting for nodes") not in phases
    assert [row["number"] for row in figure.chart()["datasets"]["ends"]] == [3]
