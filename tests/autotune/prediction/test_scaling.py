"""Strong and weak scaling as they are answered."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.prediction import scaling_study
from autotune.schemas import ScalingQuery
from search_spaces.errors import InvalidInput
from tests.autotune.prediction.calibrated import named, slow

STRATEGY = {
    "tensor_parallel": 2,
    "pipeline_parallel": 4,
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 32,
    "zero_stage": 1,
    "num_nodes": 4,
}


def query(**changes: Any) -> ScalingQuery:
    plain: dict[str, Any] = {"model": "gpt-22b", "machine": "frontier", "strategy": STRATEGY}
    return ScalingQuery.model_validate(plain | changes)


def test_both_kinds_over_halves_and_doubles() -> None:
    strong, weak = scaling_study(query()).series
    assert (strong.kind, weak.kind) == ("strong", "weak")
    assert [point.num_nodes for point in strong.points] == [1, 2, 4, 8, 16, 32, 64]
    assert {point.global_batch_size for point in strong.points} == {128}
    assert [point.global_batch_size for point in weak.points] == [32 << k for k in range(7)]
    assert strong.points[0].efficiency == weak.points[0].efficiency == 1.0
    assert strong.points[-1].efficiency < weak.points[-1].efficiency
    for point in strong.points[1:]:
        assert point.efficiency_low < point.efficiency < point.efficiency_high
        assert not point.measured


def test_it_says_where_the_layout_cannot_run() -> None:
    strong, weak = scaling_study(query(nodes=[4, 12])).series
    assert [point.num_nodes for point in strong.points] == [4]
    assert "make no global batch of 128" in strong.omitted[12]
    assert [point.num_nodes for point in weak.points] == [4, 12]


def test_it_rests_on_a_calibration() -> None:
    calibration = slow()
    summary = named(calibration)
    general, known = scaling_study(query()), scaling_study(query(), calibration, summary)
    assert known.calibration == summary
    before, after = (study.series[0].points[0].iteration_time_s for study in (general, known))
    assert after > 1.5 * before


@pytest.mark.parametrize("nodes", [[10_000], [3]])
def test_nodes_that_cannot_be_are_refused(nodes: list[int]) -> None:
    eighths = STRATEGY | {"pipeline_parallel": 16}
    with pytest.raises(InvalidInput) as refusal:
        scaling_study(query(nodes=nodes, strategy=eighths))
    assert refusal.value.field == "nodes"
