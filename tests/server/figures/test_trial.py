"""The figures of one layout."""

from __future__ import annotations

import pytest
import vl_convert

from autotune.schemas.trials import NodePower, TrialPower
from server.figures.trial import AccumulationFigure, PowerFigure, RankMemoryFigure
from server.figures.vega import VEGA_LITE_VERSION
from tests.server.figures.subjects import campaign, trial


def test_accumulations_follow_from_a_trials_two_measurements() -> None:
    measured = [
        {
            "gradient_accumulation_steps": gas,
            "global_batch_size": 2 * gas,
            "iteration_time_s": 1.0 + gas,
            "tokens_per_s": 1.0,
            "measured": True,
            "iteration_times_s": [1.0 + gas],
        }
        for gas in (2, 8)
    ]
    drawn = AccumulationFigure.of_trial(campaign(), trial(1, 100.0, accumulations=measured))
    times = {p.gradient_accumulation_steps: p.iteration_time_s for p in drawn.points}
    assert times[2] == 3.0
    assert times[4] == pytest.approx(5.0)
    assert [p.gradient_accumulation_steps for p in drawn.points if p.measured] == [2, 8]
    assert AccumulationFigure.of_trial(campaign(), trial(1, None)).points == []
    told = {row[0]: row[4] for row in drawn.table.rows}
    assert (told["2"], told["4"], told["8"]) == ("simulated", "predicted", "simulated")
    assert drawn.caption.startswith("Simulated at 2, 8 accumulation steps; most at ")
    assert drawn.described_chart()["usermeta"]["table"] == drawn.table.model_dump()


def test_memory_has_a_bar_and_a_row_for_each_rank() -> None:
    drawn = RankMemoryFigure.of(trial(1, 100.0), limit_gib=64.0)
    assert drawn.table.rows == [["0", "10"], ["1", "12.5"]]
    assert drawn.caption == "2 ranks: from 10 to 12.5 GiB, of 64 GiB each."
    picture = vl_convert.vegalite_to_svg(drawn.picture(), vl_version=VEGA_LITE_VERSION)
    assert picture.count('aria-roledescription="bar"') == 2
    assert drawn.caption in picture


def test_power_has_a_row_for_each_node() -> None:
    node = NodePower(node="n1", samples=3, at_s=[0.0, 1.0, 2.0], watts=[100.0, 400.0, 250.0])
    drawn = PowerFigure.of(TrialPower(nodes=[node]))
    assert drawn.table.rows == [["n1", "3", "100", "250", "400"]]
    assert len(drawn.chart()["datasets"]["points"]) == 3
