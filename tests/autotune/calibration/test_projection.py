"""A wide run predicted from a narrow one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotune.calibration import Calibration, Observation
from autotune.calibration.observations import columns_of
from autotune.calibration.projection import REPEATS, projected
from autotune.cost_model import estimate, perturbed
from autotune.cost_model.columns import Array, Columns
from search_spaces.strategy import Strategy
from tests.autotune.calibration.examples import GENERAL, lattice, truth
from tests.autotune.cost_model.examples import FRONTIER, GPT_22B, strategy


def run(nodes: int) -> Strategy:
    return strategy(
        tensor_parallel=2,
        pipeline_parallel=4,
        micro_batch_size=2,
        gradient_accumulation_steps=16,
        zero_stage=1,
        num_nodes=nodes,
    )


def columns(*nodes: int) -> Columns:
    return Columns.of(GPT_22B, lattice([run(count) for count in nodes]))


def projection(seconds: float, *nodes: int) -> tuple[Array, Array]:
    """Wide runs from one of a node that took so long, and calibrated on it alone."""
    seen = Observation(transformer=GPT_22B, strategy=run(1), iteration_time_s=seconds)
    return projected(
        Calibration.of(FRONTIER, [seen]).time,
        narrow=columns(*(1 for _ in nodes)),
        wide=columns(*nodes),
        log_time=np.full(len(nodes), np.log(seconds)),
    )


@pytest.mark.parametrize("seed", range(5))
def test_where_the_formulas_hold_it_is_right_on_any_machine(seed: int) -> None:
    seconds, _ = truth([run(count) for count in (1, 2, 8, 64)], perturbed(GENERAL, seed=seed))
    log_time, variance = projection(float(seconds[0]), 2, 8, 64)
    error = np.abs(log_time - np.log(seconds[1:]))
    assert error.max() < 0.05
    assert np.all(error < 2.0 * np.sqrt(variance))


def test_what_the_formulas_get_wrong_at_any_width_drops_out() -> None:
    seconds, _ = truth([run(1)], GENERAL)
    for factor in (0.5, 2.0):
        log_time, _ = projection(factor * float(seconds[0]), 2)
        assert np.exp(log_time[0]) == pytest.approx(factor * seconds[0], rel=0.12)


def test_it_is_less_sure_the_wider() -> None:
    _, variance = projection(10.0, 1, 2, 8, 64)
    assert np.sqrt(variance[0]) == pytest.approx(REPEATS)
    assert np.all(np.diff(variance) > 0)
    assert 0.05 < np.sqrt(variance[-1]) < 0.3


def short_run(stages: int) -> Observation:
    """As `run`, but of as many layers, and on as many nodes, as `stages` to 16 on 8 nodes."""
    ran = strategy(
        tensor_parallel=2,
        pipeline_parallel=stages,
        micro_batch_size=2,
        gradient_accumulation_steps=32,
        zero_stage=1,
        num_nodes=stages // 2,
    )
    return Observation(transformer=GPT_22B.with_layers(3 * stages), strategy=ran)


@pytest.mark.parametrize("seed", [None, *range(5)])
@pytest.mark.parametrize("stages", [2, 4, 8])
def test_long_and_short_pipelines_differ_on_any_machine(seed: int | None, stages: int) -> None:
    """What the bubble costs decides, of which the shortest pipelines show least."""
    parameters = GENERAL if seed is None else perturbed(GENERAL, seed=seed)
    pair = [short_run(stages), short_run(16)]
    seconds = [
        float(
            estimate(
                each.transformer, FRONTIER, lattice([each.strategy]), parameters=parameters
            ).iteration_time_s[0]
        )
        for each in pair
    ]
    seen = replace(pair[0], iteration_time_s=seconds[0])
    narrow, wide = (columns_of([each], FRONTIER) for each in pair)
    mean, variance = projected(
        Calibration.of(FRONTIER, [seen]).time,
        narrow=narrow,
        wide=wide,
        log_time=np.log(seconds[:1]),
    )
    assert seconds[1] > 1.15 * seconds[0]
    error = abs(float(mean[0]) - np.log(seconds[1]))
    assert error < (0.01 if seed is None else 0.12)
    assert error < 2.0 * float(np.sqrt(variance[0]))
