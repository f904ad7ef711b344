"""Strong and weak scaling: against the Frontier study, by calibration, and where trials ran."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.calibration import Calibration, Observation, general_knowledge
from autotune.prediction.scaling import scaling_series
from autotune.prediction.strategy import predict
from autotune.schemas.choices import ScalingKind, TrialState
from autotune.schemas.requests import PredictionQuery
from autotune.schemas.scaling import ScalingSeries
from search_spaces.catalog import load_model
from search_spaces.errors import InvalidInput
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer
from tests.autotune.cost_model.examples import FRONTIER, GPT_175B
from tests.autotune.cost_model.study import SCALINGS, SETTINGS, Scaling
from tests.autotune.prediction.calibrated import slow
from tests.autotune.records import strategy as layout

KINDS: tuple[ScalingKind, ...] = ("strong", "strong", "weak", "weak")
KNOWN = general_knowledge(FRONTIER)
STRATEGY = replace(SETTINGS[1][0], batch=8000).strategy


def scaling(
    calibration: Calibration, model: Transformer, strategy: Strategy, kind: ScalingKind, **of: Any
) -> ScalingSeries:
    curves = scaling_series(calibration, model, strategy, **of)
    return next(curve for curve in curves if curve.kind == kind)


@pytest.mark.parametrize(("printed", "kind"), list(zip(SCALINGS, KINDS, strict=True)))
def test_the_study(printed: Scaling, kind: ScalingKind) -> None:
    """Weak within 2 points of a hundred; strong within 10, which the study does not explain."""
    small, large = printed.small, printed.large
    curve = scaling(
        KNOWN,
        load_model(small.model),
        small.strategy,
        kind=kind,
        nodes=[large.num_nodes, small.num_nodes],
    )
    least, most = curve.points
    assert (least.num_nodes, most.num_nodes) == (small.num_nodes, large.num_nodes)
    assert (most.strategy, most.global_batch_size) == (large.strategy, large.batch)
    assert least.efficiency == 1.0
    assert (least.efficiency_low, least.efficiency_high) == (1.0, 1.0)
    assert 100 * most.efficiency == pytest.approx(
        printed.printed, abs=2 if printed.explained else 10
    )
    assert most.efficiency_low < most.efficiency < most.efficiency_high
    assert f"{100 * most.efficiency:.0f} % of the rate per GPU" in curve.sentence


def test_measured_points_say_so_and_narrow_the_others() -> None:
    nodes = [16, 32, 64, 128]
    before = scaling(KNOWN, GPT_175B, STRATEGY, kind="strong", nodes=nodes)
    ran = before.points[:2]
    seconds = {point.strategy: 1.1 * point.iteration_time_s for point in ran}
    calibration = Calibration.of(
        FRONTIER,
        [
            Observation(transformer=GPT_175B, strategy=each, iteration_time_s=time)
            for each, time in seconds.items()
        ],
    )
    after = scaling(calibration, GPT_175B, STRATEGY, kind="strong", nodes=nodes, measured=seconds)
    assert [point.measured for point in after.points] == [True, True, False, False]
    assert after.points[0].iteration_time_s == pytest.approx(seconds[ran[0].strategy])
    for known, foreseen in zip(after.points, before.points, strict=True):
        assert known.efficiency == pytest.approx(foreseen.efficiency, rel=0.02)
    width_before, width_after = (
        curve.points[3].efficiency_high - curve.points[3].efficiency_low
        for curve in (before, after)
    )
    assert width_after < 0.7 * width_before
    assert "predicted" in after.sentence


def test_what_failed_stands_apart_and_is_no_base() -> None:
    nodes = [16, 32, 64]
    ran = [
        point.strategy
        for point in scaling(KNOWN, GPT_175B, STRATEGY, kind="weak", nodes=nodes).points
    ]
    failed = {ran[0]: TrialState.OOM, ran[2]: TrialState.CRASHED}
    curve = scaling(KNOWN, GPT_175B, STRATEGY, kind="weak", nodes=nodes, failed=failed)
    assert [(point.num_nodes, point.efficiency) for point in curve.points] == [(32, 1.0)]
    assert {each.strategy: each.state for each in curve.failed} == failed
    assert curve.sentence.endswith("; out of memory on 16 nodes; crashed on 64 nodes")
    failed[ran[1]] = TrialState.OOM
    curve = scaling(KNOWN, GPT_175B, STRATEGY, kind="weak", nodes=nodes, failed=failed)
    assert curve.points == []
    assert curve.sentence == (
        "No step could be timed: out of memory on 16 and 32 nodes; crashed on 64 nodes"
    )


def test_nodes_on_which_the_layout_cannot_run_are_named() -> None:
    curve = scaling(KNOWN, GPT_175B, STRATEGY, kind="strong", nodes=[16, 20, 48])
    assert [point.num_nodes for point in curve.points] == [16]
    assert "does not divide 160 GPUs" in curve.omitted[20]
    assert curve.omitted[48] == "6 replicas of micro-batches of 1 make no global batch of 8000"
    with pytest.raises(InvalidInput, match="can run on none of them"):
        scaling(KNOWN, GPT_175B, STRATEGY, kind="strong", nodes=[20])


def test_both_kinds_over_halves_and_doubles() -> None:
    strong, weak = scaling_series(KNOWN, load_model("gpt-22b"), layout(gas=32, nodes=4), nodes=())
    assert (strong.kind, weak.kind) == ("strong", "weak")
    assert [point.num_nodes for point in strong.points] == [1, 2, 4, 8, 16, 32, 64]
    assert {point.global_batch_size for point in strong.points} == {128}
    assert [point.global_batch_size for point in weak.points] == [32 << k for k in range(7)]
    assert strong.points[0].efficiency == weak.points[0].efficiency == 1.0
    assert strong.points[-1].efficiency < weak.points[-1].efficiency
    for point in strong.points[1:]:
        assert point.efficiency_low < point.efficiency < point.efficiency_high
        assert not point.measured


def query(strategy: Strategy, *nodes: int) -> PredictionQuery:
    shape = strategy
    return PredictionQuery(
        model="gpt-22b", machine="frontier", strategy=shape, over_nodes=list(nodes)
    )


def test_a_prediction_scales_by_its_own_calibration() -> None:
    question = query(layout(gas=32, nodes=4), 4, 12)
    general, known = predict(question).scaling, predict(question, slow()).scaling
    assert [[point.num_nodes for point in series.points] for series in general] == [[4], [4, 12]]
    assert "make no global batch of 128" in general[0].omitted[12]
    before, after = (series[0].points[0].iteration_time_s for series in (general, known))
    assert after > 1.5 * before
    assert not predict(query(layout(gas=32, nodes=4))).scaling


@pytest.mark.parametrize("nodes", [[10_000], [3]])
def test_nodes_that_cannot_be_are_refused(nodes: list[int]) -> None:
    with pytest.raises(InvalidInput) as refusal:
        predict(query(layout(pp=16, gas=32, nodes=4), *nodes))
    assert refusal.value.field == "over_nodes"
