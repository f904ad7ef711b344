"""Documents: what is written is what is read, and what cannot have been observed is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from autotune.calibration import Calibration, Observation, machine_differences
from autotune.calibration.document import (
    calibration_of,
    detail_of,
    summary_of,
)
from autotune.cost_model import estimate
from autotune.resolution import machine_shape, model_shape
from autotune.schemas.calibrations import CalibrationDocument, ObservationShape
from autotune.schemas.shapes import StrategyShape
from search_spaces.catalog import load_machine, load_model
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.lattice import Lattice
from search_spaces.strategy import Strategy
from tests.autotune.calibration.examples import document_of

FRONTIER = load_machine("frontier")
NOW = datetime(2030, 1, 1, tzinfo=UTC)
BASE: dict[str, Any] = {
    "tensor_parallel": 1,
    "pipeline_parallel": 8,
    "micro_batch_size": 1,
    "gradient_accumulation_steps": 64,
    "zero_stage": 1,
    "num_nodes": 2,
}


def observed(model: str, **changes: Any) -> Observation:
    """A step that took a fifth longer than the cost model says."""
    transformer, strategy = load_model(model), Strategy(**(BASE | changes))
    lattice = Lattice.of([strategy], gpus_per_node=FRONTIER.gpus_per_node)
    estimated = estimate(transformer, FRONTIER, lattice)
    assert estimated.energy_joule is not None
    tokens = strategy.global_batch_size(FRONTIER.gpus_per_node) * transformer.seq_length
    return Observation(
        transformer=transformer,
        strategy=strategy,
        iteration_time_s=1.2 * float(estimated.iteration_time_s[0]),
        peak_memory_gib=0.9 * float(estimated.memory_gib[0]),
        fitted=True,
        gpu_joules_per_token=float(estimated.energy_joule[0]) / tokens,
    )


def fitted() -> Calibration:
    observations = [
        observed("gpt-22b"),
        observed("gpt-22b", micro_batch_size=2),
        observed("gpt-1.4b", pipeline_parallel=1, tensor_parallel=2),
        Observation(
            transformer=load_model("gpt-175b"),
            strategy=Strategy(**(BASE | {"pipeline_parallel": 1})),
            fitted=False,
        ),
    ]
    return Calibration.of(FRONTIER, observations, software="Megatron-DeepSpeed of 2030")


def test_a_calibration_survives_as_a_document() -> None:
    """As text and back: the same observations, and so the same constants and forecasts."""
    before = fitted()
    text = document_of(before, simulated=True).model_dump_json()
    document = CalibrationDocument.model_validate_json(text)
    after = calibration_of(document)
    assert document.simulated
    assert (after.machine, after.software) == (FRONTIER, "Megatron-DeepSpeed of 2030")
    assert after.observations == before.observations
    assert list(after.constants) == list(before.constants)
    lattice = Lattice.of([Strategy(**BASE)], gpus_per_node=FRONTIER.gpus_per_node)
    one, two = (each.forecast(load_model("gpt-22b"), lattice) for each in (before, after))
    assert np.array_equal(one.iteration_time_s, two.iteration_time_s)
    assert np.array_equal(one.fit_probability, two.fit_probability)
    assert one.energy_joule is not None
    assert two.energy_joule is not None
    assert np.array_equal(one.energy_joule, two.energy_joule)


def test_a_summary_counts() -> None:
    summary = summary_of(document_of(fitted(), simulated=True), name="mine", created_at=NOW)
    assert (summary.observations, summary.timed, summary.out_of_memory) == (4, 3, 1)
    assert summary.models == ["gpt-22b", "gpt-1.4b", "gpt-175b"]
    assert (summary.machine, summary.simulated, summary.created_at) == ("frontier", True, NOW)


def test_details_begin_with_what_was_learned_most_about() -> None:
    calibration = fitted()
    summary = summary_of(document_of(calibration, simulated=False), name="mine", created_at=None)
    detail = detail_of(calibration, summary)
    left = [each.spread / each.prior_spread for each in detail.constants]
    assert left == sorted(left)
    assert left[0] < 0.9
    assert {each.name for each in detail.constants} == {each.name for each in calibration.constants}
    assert detail.observations == summary.observations


def test_machines_differ_in_what_time_and_memory_follow_from_alone() -> None:
    shape = machine_shape(FRONTIER).model_copy(update={"description": "ours", "max_nodes": 4})
    document = document_of(fitted(), simulated=False).model_copy(update={"machine": shape})
    assert machine_differences(calibration_of(document).machine, FRONTIER) == []
    other = load_machine("perlmutter")
    assert machine_differences(other, FRONTIER)[0] == "name 'perlmutter'"


def shape(**changes: Any) -> ObservationShape:
    plain: dict[str, Any] = {
        "model": model_shape(load_model("gpt-22b")),
        "strategy": StrategyShape(**BASE),
        "iteration_time_s": 40.0,
    }
    return ObservationShape(**(plain | changes))


def refused(*observations: ObservationShape) -> dict[str, InvalidInput]:
    machine = machine_shape(FRONTIER)
    document = CalibrationDocument(machine=machine, observations=list(observations))
    with pytest.raises(InvalidInputs) as refusal:
        calibration_of(document)
    return {problem.field: problem for problem in refusal.value.problems}


def test_every_faulty_observation_is_named_by_its_number() -> None:
    problems = refused(
        shape(),
        shape(iteration_time_s=None),
        shape(),
        shape(strategy=StrategyShape(**(BASE | {"num_nodes": 10**6}))),
        shape(model={"num_layers": 2, "hidden_size": 10, "num_attention_heads": 3}),
    )
    assert set(problems) == {
        "observations.1.fitted",
        "observations.3.strategy",
        "observations.4.model.num_attention_heads",
    }
    assert "nothing was observed" in problems["observations.1.fitted"].reason


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        ({"iteration_time_s": 1e-3}, "iteration_time_s", "takes from"),
        ({"iteration_time_s": 1e9}, "iteration_time_s", "takes from"),
        ({"peak_memory_gib": 40_000.0}, "peak_memory_gib", "is it MiB"),
        ({"fitted": False}, "iteration_time_s", "memory did not suffice"),
        ({"gpu_joules_per_token": 500.0}, "gpu_joules_per_token", "W for each GPU"),
        (
            {"fitted": False, "iteration_time_s": None, "gpu_joules_per_token": 0.5},
            "gpu_joules_per_token",
            "memory did not suffice",
        ),
        (
            {"fitted": False, "iteration_time_s": None, "peak_memory_gib": 60.0},
            "peak_memory_gib",
            "memory did not suffice",
        ),
        (
            {"strategy": StrategyShape(**(BASE | {"num_nodes": 1, "tensor_parallel": 3}))},
            "strategy",
            "does not divide 8 GPUs",
        ),
    ],
)
def test_what_cannot_have_been_observed(changes: dict[str, Any], field: str, reason: str) -> None:
    problem = refused(shape(**changes))[f"observations.0.{field}"]
    assert reason in problem.reason
    assert problem.valid


def test_a_rule_of_one_framework_is_not_demanded_of_all() -> None:
    """ZeRO 3 with a pipeline: refused of DeepSpeed's trials, but others run it."""
    strategy = StrategyShape(**(BASE | {"zero_stage": 3}))
    machine = machine_shape(FRONTIER)
    document = CalibrationDocument(machine=machine, observations=[shape(strategy=strategy)])
    assert calibration_of(document).observations[0].strategy.zero_stage == 3


def test_a_machine_that_is_none() -> None:
    machine = machine_shape(FRONTIER).model_copy(update={"memory_gib": 65536.0})
    document = CalibrationDocument(machine=machine, observations=[shape()])
    with pytest.raises(InvalidInputs, match=r"machine\.memory_gib"):
        calibration_of(document)


def test_not_more_faults_are_told_than_anybody_reads() -> None:
    assert len(refused(*[shape(iteration_time_s=None)] * 30)) == 20
