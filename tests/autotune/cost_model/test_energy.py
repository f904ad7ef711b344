"""Energy of training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotune.cost_model.energy import gpu_energy_joule, iteration_energy_joule
from search_spaces.machine import Machine
from tests.autotune.cost_model.examples import FRONTIER, cost, strategy

KNOWN = replace(FRONTIER, gpu_idle_watt=45.0, gpu_max_watt=250.0, host_watt=600.0)
UNKNOWN = [
    replace(KNOWN, gpu_idle_watt=None),
    replace(KNOWN, gpu_max_watt=None),
    replace(KNOWN, host_watt=None),
]


def test_energy_of_a_step_lies_between_idle_and_capped() -> None:
    """Every part of a step has a power, and none less than an idle GPU or more than its cap."""
    chosen = [strategy(zero_stage=z, pipeline_parallel=p) for z in range(4) for p in (1, 4)]
    estimate = cost(*chosen, machine=KNOWN)
    nodes = np.full(len(chosen), 2)
    joule = iteration_energy_joule(KNOWN, num_nodes=nodes, time_parts_s=estimate.time_parts_s)
    assert joule is not None
    watt = joule / estimate.iteration_time_s
    assert (watt > 16 * 45 + 2 * 600).all()
    assert (watt < 16 * 250 + 2 * 600).all()


def test_a_gpu_that_waits_for_others_draws_half_of_the_way() -> None:
    """In the bubble of a pipeline it asks again and again; products of matrices cost the cap, and
    what the host does alone leaves it idle."""
    plain = cost(strategy(), machine=KNOWN).time_parts_s
    nodes = np.array([2])
    before = iteration_energy_joule(KNOWN, num_nodes=nodes, time_parts_s=plain)
    assert before is not None
    for name, watt in (
        ("pipeline_bubble", 45 + 205 / 2),
        ("matrix_multiplication", 250),
        ("step_overhead", 45),
    ):
        longer = {**plain, name: plain[name] + 10.0}
        after = iteration_energy_joule(KNOWN, num_nodes=nodes, time_parts_s=longer)
        assert after is not None
        assert (after - before)[0] == pytest.approx(10 * (16 * watt + 2 * 600))


def test_hosts_are_apart_from_the_gpus() -> None:
    """A factor on the GPUs' power leaves the hosts', and sensors of GPUs see no host."""
    parts = cost(strategy(), machine=KNOWN).time_parts_s
    nodes = np.array([2])
    gpus = gpu_energy_joule(KNOWN, num_nodes=nodes, time_parts_s=parts)
    whole, doubled = (
        iteration_energy_joule(KNOWN, num_nodes=nodes, time_parts_s=parts, power_factor=factor)
        for factor in (1.0, 2.0)
    )
    assert gpus is not None
    assert whole is not None
    assert doubled is not None
    hosts = 2 * 600 * sum(float(part[0]) for part in parts.values())
    assert whole[0] - gpus[0] == pytest.approx(hosts)
    assert doubled[0] - whole[0] == pytest.approx(gpus[0])


@pytest.mark.parametrize("machine", UNKNOWN)
def test_unknown_power_gives_no_energy(machine: Machine) -> None:
    parts = cost(strategy()).time_parts_s
    nodes = np.array([2])
    assert iteration_energy_joule(machine, num_nodes=nodes, time_parts_s=parts) is None
