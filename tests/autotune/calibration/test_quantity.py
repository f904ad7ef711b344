"""The two quantities that are calibrated, as functions of how far each constant is off."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from autotune.calibration.quantity import ALLOCATED, LABEL, Quantity
from autotune.cost_model import Parameters, estimate
from autotune.cost_model.columns import Columns
from search_spaces.catalog import load_machine, load_model
from search_spaces.machine import Machine
from tests.autotune.calibration.examples import GENERAL, SPACE, lattice, truth
from tests.autotune.cost_model.examples import CPU, FRONTIER, GPT_22B, columns, strategy

COLUMNS = Columns.of(GPT_22B, lattice(SPACE[:24]))
NONE = np.zeros(24)


def quantity(*, of_memory: bool, machine: Machine = FRONTIER) -> Quantity:
    return Quantity(machine=machine, prior=Parameters.default(machine), of_memory=of_memory)


def test_every_constant_that_varies_belongs_to_one_quantity() -> None:
    time, memory = quantity(of_memory=False).names, quantity(of_memory=True).names
    assert not set(time) & set(memory)
    varying = {field.name for field in fields(Parameters) if field.metadata["spread"]}
    assert {*time, *memory} == varying


def test_a_constant_that_is_0_cannot_be_scaled() -> None:
    assert "communicator_gib" in quantity(of_memory=True).names
    assert "communicator_gib" not in quantity(of_memory=True, machine=CPU).names


@pytest.mark.parametrize("of_memory", [False, True])
def test_what_is_generally_known_is_at_0(of_memory: bool) -> None:
    one = quantity(of_memory=of_memory)
    z = np.zeros(len(one.names))
    expected = truth(SPACE[:24], GENERAL)[of_memory]
    np.testing.assert_allclose(one.log_value(z, COLUMNS, NONE), np.log(expected), rtol=1e-12)
    assert one.parameters(z) == GENERAL


def test_z_counts_standard_deviations_of_logarithms() -> None:
    one = quantity(of_memory=False)
    z = np.zeros(len(one.names))
    z[one.names.index("memory_efficiency")] = -2.0
    known = {field.name: field.metadata for field in fields(Parameters)}
    spread = known["memory_efficiency"]["spread"]
    assert one.parameters(z).memory_efficiency == pytest.approx(
        float(GENERAL.memory_efficiency) * np.exp(-2 * spread)
    )
    two = one.parameters(np.stack([0 * z, z]))
    assert np.shape(two.memory_efficiency) == (2, 1)
    assert np.ravel(two.gemm_efficiency).tolist() == pytest.approx([GENERAL.gemm_efficiency] * 2)


@pytest.mark.parametrize("of_memory", [False, True])
def test_derivatives(of_memory: bool) -> None:
    """Against differences a hundred times wider, on both sides."""
    one = quantity(of_memory=of_memory)
    z = np.random.default_rng(0).normal(scale=0.3, size=len(one.names))
    value, slopes = one.linearised(z, COLUMNS, NONE)
    assert slopes.shape == (24, len(one.names))
    np.testing.assert_allclose(value, one.log_value(z, COLUMNS, NONE), rtol=1e-12)
    for at in range(len(one.names)):
        step = 0.01 * np.eye(len(one.names))[at]
        above, below = (one.log_value(z + s, COLUMNS, NONE) for s in (step, -step))
        wide = (above - below) / 0.02
        # Where one of two things takes longer, a rate changes from one side to the other.
        assert np.mean(np.abs(slopes[:, at] - wide) < 1e-3) > 0.9, one.names[at]


def test_time_depends_on_no_constant_of_memory() -> None:
    """Nor memory on one of time: changed alone, it changes the other not at all."""
    times, sizes = quantity(of_memory=False), quantity(of_memory=True)
    plain = truth(SPACE[:24], GENERAL)
    z = np.ones(len(times.names))
    np.testing.assert_array_equal(truth(SPACE[:24], times.parameters(z))[1], plain[1])
    z = np.ones(len(sizes.names))
    np.testing.assert_array_equal(truth(SPACE[:24], sizes.parameters(z))[0], plain[0])


def test_a_label_speaks_of_what_cannot_be_used_as_well() -> None:
    """Of which nothing but whether it fitted is known; peaks are what the allocator reports."""
    one = quantity(of_memory=True)
    z = np.zeros(len(one.names))
    known = estimate(GPT_22B, FRONTIER, lattice(SPACE[:24]), parameters=GENERAL)
    expected = {
        LABEL: known.memory_gib / float(GENERAL.usable_memory),
        ALLOCATED: known.allocated_gib,
        0.0: known.reserved_gib,
    }
    for kind, gib in expected.items():
        found = one.log_value(z, COLUMNS, np.full(24, kind))
        np.testing.assert_allclose(np.exp(found), gib)
    assert (known.allocated_gib < known.reserved_gib).all()


def test_a_quantity_that_no_constant_moves_is_equal_in_all_rows() -> None:
    """One GPU, one micro-batch: no network, no pipeline, no replicas."""
    one = quantity(of_memory=False)
    alone = columns(
        strategy(
            tensor_parallel=1,
            pipeline_parallel=1,
            zero_stage=0,
            num_nodes=1,
            gradient_accumulation_steps=1,
        ),
        data_parallel=1.0,
        zero_shard_gpus=1.0,
        world_size=1.0,
    )
    slopes = one.linearised(np.zeros(len(one.names)), alone, np.zeros(1))[1][0]
    still = {name for name, slope in zip(one.names, slopes, strict=True) if abs(slope) < 1e-9}
    assert {
        "intra_node_efficiency",
        "inter_node_efficiency",
        "data_parallel_efficiency",
        "pipeline_efficiency",
        "pipeline_latency_s",
        "collective_latency_s",
        "replica_step_s",
        "straggling",
        "exposed_transfer",
    } <= still
    assert not {"gemm_efficiency", "memory_efficiency", "flash_efficiency"} & still


@pytest.mark.parametrize(
    ("name", "of_memory"), [("expert_load", False), ("routing_imbalance", True)]
)
def test_no_prediction_jumps_with_the_load_of_experts(name: str, of_memory: bool) -> None:
    """A jump within a nudge would be a slope of thousands, and nothing known of its layout."""
    one = quantity(of_memory=of_memory, machine=load_machine("dgx-h200"))
    layout = strategy(tensor_parallel=1, pipeline_parallel=1, micro_batch_size=1, num_nodes=2)
    layout = replace(layout, expert_parallel=8, activation_checkpointing="none")
    z = np.zeros((500, len(one.names)))
    z[:, one.names.index(name)] = np.linspace(-1.0, 1.0, 500)
    values = one.log_value(z, columns(layout, transformer=load_model("qwen3-30b-a3b")), np.zeros(1))
    assert np.ptp(values) > 0.005
    assert np.abs(np.diff(values, axis=0)).max() < 0.001
