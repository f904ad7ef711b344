"""The constants: what is said of each, which GPU has which, and other plausible machines."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from autotune.cost_model import Parameters, perturbed
from autotune.cost_model.families import CPU as CPU_VALUES
from autotune.cost_model.families import FAMILIES
from search_spaces.catalog import load_machine
from tests.autotune.cost_model.examples import CPU, DGX_A100, FRONTIER


def test_every_constant_has_a_unit_and_a_reason() -> None:
    for constant in fields(Parameters):
        assert constant.metadata["unit"]
        assert len(constant.metadata["reason"]) > 20
        assert 0 <= constant.metadata["spread"] <= 1.5


@pytest.mark.parametrize("values", [*FAMILIES.values(), CPU_VALUES])
def test_families_name_constants_within_their_units(values: dict[str, float]) -> None:
    units = {constant.name: constant.metadata["unit"] for constant in fields(Parameters)}
    for name, value in values.items():
        assert name in units
        assert value >= 0
        if units[name] == "fraction":
            assert value <= 1


@pytest.mark.parametrize(
    ("machine", "family"),
    [("frontier", "mi250"), ("lumi-g", "mi250"), ("mi300x", "mi300"), ("summit", "v100"),
     ("perlmutter", "a100"), ("polaris", "a100"), ("dgx-h100", "h100"), ("aurora", "1550")],
)  # fmt: skip
def test_a_gpu_is_known_by_its_name(machine: str, family: str) -> None:
    results = Parameters.default(load_machine(machine))
    assert all(getattr(results, name) == value for name, value in FAMILIES[family].items())


def test_a_vendors_program_is_faster_and_a_plain_one_slower() -> None:
    vendor, usual, plain = (
        Parameters.default(DGX_A100, tuning) for tuning in ("vendor", "usual", "plain")
    )
    for name in ("intra_node_efficiency", "inter_node_efficiency"):
        assert 1 > getattr(vendor, name) > getattr(usual, name) > getattr(plain, name)
    for name in ("exposed_tensor_parallel", "exposed_data_parallel"):
        assert getattr(vendor, name) < getattr(usual, name) == getattr(plain, name)
    assert vendor.gemm_efficiency == usual.gemm_efficiency > plain.gemm_efficiency
    assert vendor.flash_efficiency == usual.flash_efficiency > plain.flash_efficiency
    assert Parameters.default(FRONTIER, "vendor").intra_node_efficiency < 1
    one_by_one = Parameters.default(CPU).expert_module_s
    plain_cpu = replace(Parameters.default(CPU, "plain"), expert_module_s=one_by_one)
    assert plain_cpu == Parameters.default(CPU)


def test_a_grace_hopper_is_a_hopper() -> None:
    assert (
        Parameters.default(load_machine("gh200")).gemm_efficiency
        == (FAMILIES["h100"]["gemm_efficiency"])
    )


def test_an_unknown_gpu_without_a_peak_is_no_cpu() -> None:
    unknown = replace(CPU, gpu="FutureGPU", memory_bandwidth_gb_per_s=500.0)
    assert Parameters.default(unknown) == Parameters()
    assert Parameters.default(unknown) != Parameters.default(CPU)


def test_perturbed_is_another_plausible_machine() -> None:
    plain = Parameters.default(FRONTIER)
    assert perturbed(plain, seed=1) == perturbed(plain, seed=1)
    assert perturbed(plain, seed=1) != perturbed(plain, seed=2)
    ratios = []
    for seed in range(50):
        other = perturbed(plain, seed=seed)
        assert other.compute_units == plain.compute_units
        for constant in fields(plain):
            value = float(getattr(other, constant.name))
            if constant.metadata["unit"] == "fraction":
                assert 0 < value <= 1
            if constant.metadata["unit"] == "s":
                ratios.append(np.log(value / float(getattr(plain, constant.name))))
    assert 0.1 < np.std(ratios) < 0.2
    assert abs(np.mean(ratios)) < 0.06


def test_perturbing_a_cpu_leaves_what_is_whole_or_nothing() -> None:
    """No communicator needs device memory there, and all of the limit can be used."""
    for seed in range(20):
        other = perturbed(Parameters.default(CPU), seed=seed)
        assert other.communicator_gib == 0
        assert 0 < float(other.usable_memory) <= 1


def test_a_fact_of_the_hardware_is_not_perturbed() -> None:
    plain = Parameters.default(DGX_A100)
    facts = [f.name for f in fields(plain) if not f.metadata["spread"]]
    assert "compute_units" in facts
    other = perturbed(plain, seed=3)
    assert all(getattr(other, name) == getattr(plain, name) for name in facts)
