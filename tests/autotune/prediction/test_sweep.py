"""Whole spaces in the order of their predicted rate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.calibration import general_knowledge
from autotune.prediction.strategy import predict
from autotune.prediction.sweep import sweep
from autotune.schemas.requests import PredictionQuery, SpaceQuery
from autotune.schemas.resolution import space_of
from autotune.schemas.spaces import SpaceSpec
from search_spaces.catalog import load_machine, load_model
from search_spaces.errors import InvalidInputs
from tests.autotune.prediction.calibrated import SMALL, slow, summary


def query(**changes: Any) -> SpaceQuery:
    plain: dict[str, Any] = {"model": "gpt-22b", "machine": "frontier", "nodes": 2, "space": SMALL}
    return SpaceQuery(**(plain | changes))


def test_a_sweep_is_what_forecasting_every_strategy_gives() -> None:
    """Against the plain way: all of the space forecast, sorted, cut."""
    answer = sweep(query(), most=7)
    model, machine = load_model("gpt-22b"), load_machine("frontier")
    lattice = space_of(SMALL, model, machine, nodes=2).lattice()
    forecast = general_knowledge(machine).forecast(model, lattice)
    rates = lattice.global_batch_size * model.seq_length / forecast.iteration_time_s
    fits = forecast.fit_probability > 0.5
    assert answer.legal == len(lattice)
    assert answer.fitting == np.count_nonzero(fits)
    assert 7 < answer.fitting < answer.legal
    best = np.sort(rates[fits])[::-1][:7]
    assert [row.tokens_per_s for row in answer.rows] == pytest.approx(best)
    assert [row.rank for row in answer.rows] == list(range(1, 8))


def test_a_row_agrees_with_the_prediction_of_its_strategy() -> None:
    calibration = slow()
    answer = sweep(query(), calibration, summary(), most=3)
    assert answer.calibration == summary()
    for row in answer.rows:
        wanted = PredictionQuery(model="gpt-22b", machine="frontier", strategy=row.strategy)
        alone = predict(wanted, calibration, summary())
        assert row.tokens_per_s == pytest.approx(alone.tokens_per_s)
        assert row.memory_gib == pytest.approx(alone.memory_gib)
        assert row.fit_probability == pytest.approx(alone.fit_probability)
        assert row.global_batch_size == alone.global_batch_size
        assert row.tokens_per_s_low < row.tokens_per_s < row.tokens_per_s_high
        tokens = row.tokens_per_s * row.iteration_time_s
        assert alone.iteration_time_high_s is not None
        assert row.tokens_per_s_low == pytest.approx(tokens / alone.iteration_time_high_s)


def test_all_rows_where_most_is_more_than_there_are() -> None:
    answer = sweep(query(), most=1000)
    assert len(answer.rows) == answer.fitting


def test_the_whole_of_table_v() -> None:
    wanted = query(model="gpt-175b", nodes=16, space=SpaceSpec(preset="table-v"))
    answer = sweep(wanted)
    assert answer.legal > 2000
    assert len(answer.rows) == 20
    assert answer.seconds < 5


def test_a_sweep_with_nothing_legal_or_fitting_is_refused() -> None:
    with pytest.raises(InvalidInputs, match="heads_by_tensor removed"):
        sweep(query(space=SpaceSpec(tensor_parallel=7)))
    with pytest.raises(InvalidInputs, match="fits nowhere within 1 node") as refusal:
        sweep(query(model="gpt-175b", nodes=1, space=SpaceSpec()))
    [problem] = refusal.value.problems
    assert problem.field == "nodes"
    least = int(problem.valid.split()[0])
    assert sweep(query(model="gpt-175b", nodes=least, space=SpaceSpec())).fitting > 0


def test_more_strategies_than_can_be_estimated_are_refused() -> None:
    """Every accumulation up to 1024, and choices beside it."""
    wide = SpaceSpec(
        gradient_accumulation_steps={"minimum": 1, "maximum": 1024},
        micro_batch_size=[1, 2, 4, 8],
        zero_stage=[0, 1],
        flash_attention=[True, False],
        activation_checkpointing=["none", "selective", "full"],
        num_nodes=2,
    )
    with pytest.raises(InvalidInputs, match="strategies are legal, which are too many") as refusal:
        sweep(query(space=wide))
    assert refusal.value.problems[0].field == "space"
