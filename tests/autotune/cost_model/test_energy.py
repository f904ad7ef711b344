"""Energy of training."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.cost_model import training_energy_joule
from search_spaces.machine import Machine
from tests.autotune.cost_model.examples import FRONTIER

KNOWN = replace(FRONTIER, gpu_idle_watt=45.0, gpu_max_watt=250.0, host_watt=600.0)


def test_energy_is_power_times_time() -> None:
    joule = training_energy_joule(KNOWN, num_nodes=2, seconds=3600.0, utilisation=0.8)
    assert joule == pytest.approx(3600 * (16 * (45 + 205 * 0.8) + 2 * 600))


@pytest.mark.parametrize(
    "machine",
    [
        replace(KNOWN, gpu_idle_watt=None),
        replace(KNOWN, gpu_max_watt=None),
        replace(KNOWN, host_watt=None),
    ],
)
def test_unknown_power_gives_no_energy(machine: Machine) -> None:
    assert training_energy_joule(machine, num_nodes=1, seconds=1.0, utilisation=1.0) is None
