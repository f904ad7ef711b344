"""Measured power: how it moves the energy that is foreseen, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.calibration import Calibration, Observation
from autotune.calibration.power import NOISE, SPREAD
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from tests.autotune.cost_model.examples import FRONTIER, GPT_22B, strategy

TOKENS = 16 * 2 * 2 * 2048
TRIED = [strategy(zero_stage=stage) for stage in (0, 1, 2, 3)]


def measured(
    factor: float, *, count: int = 4, slower: float = 1.0, **changes: object
) -> list[Observation]:
    """Trials whose GPUs drew `factor` times what general knowledge says of steps that took
    `slower` times as long."""
    gpus_alone = replace(FRONTIER, host_watt=0.0)
    lattice = Lattice.of(TRIED, gpus_per_node=8)
    known = Calibration.of(gpus_alone).forecast(GPT_22B, lattice)
    assert known.energy_joule is not None
    return [
        Observation(
            transformer=GPT_22B,
            strategy=TRIED[i],
            iteration_time_s=float(known.iteration_time_s[i]) * slower,
            gpu_joules_per_token=factor * slower * float(known.energy_joule[i]) / TOKENS,
            **changes,  # type: ignore[arg-type]
        )
        for i in range(count)
    ]


def joule(machine: Machine, trials: list[Observation]) -> float:
    lattice = Lattice.of([strategy(micro_batch_size=1)], gpus_per_node=8)
    found = Calibration.of(machine, trials).forecast(GPT_22B, lattice).energy_joule
    assert found is not None
    return float(found[0])


def test_measured_power_scales_the_gpus_and_not_the_hosts() -> None:
    """The prior keeps a share of `NOISE² / (NOISE² + n SPREAD²)`; seconds are what they were."""
    unsampled = [replace(trial, gpu_joules_per_token=None) for trial in measured(1.3)]
    alone = replace(FRONTIER, host_watt=0.0)
    prior_share = NOISE**2 / (NOISE**2 + 4 * SPREAD**2)
    gained = joule(alone, measured(1.3)) / joule(alone, unsampled)
    assert gained == pytest.approx(1.3 ** (1 - prior_share), rel=0.01)
    added = joule(FRONTIER, measured(1.3)) - joule(FRONTIER, unsampled)
    assert added == pytest.approx((gained - 1) * joule(alone, unsampled), rel=1e-6)


def test_slow_steps_are_hardly_power() -> None:
    """On an MI250X some of the time may be a longer bubble, in which GPUs draw less."""
    power = Calibration.of(FRONTIER, measured(1.0, slower=1.5)).power
    assert power.factor == pytest.approx(1.0, rel=0.1)
    assert power.measured == 4


def test_one_wild_sensor_changes_little() -> None:
    trials = measured(1.2)
    wild = [
        *trials[:3],
        replace(trials[3], gpu_joules_per_token=100 * (trials[3].gpu_joules_per_token or 0)),
    ]
    assert Calibration.of(FRONTIER, wild).power.factor == pytest.approx(1.2, rel=0.05)


def test_what_counts_little_gives_way() -> None:
    """Earlier trials of other versions drew less; the fewer that count whole decide."""
    earlier, now = measured(0.8, weight=0.2), measured(1.2, count=2)
    assert Calibration.of(FRONTIER, [*earlier, *now]).power.factor == pytest.approx(1.2, rel=0.05)


@pytest.mark.parametrize(
    "machine", [replace(FRONTIER, gpu_idle_watt=None), replace(FRONTIER, gpu_max_watt=None)]
)
def test_power_against_no_figures_is_left_alone(machine: Machine) -> None:
    power = Calibration.of(machine, measured(1.3)).power
    assert (power.measured, power.factor, power.deviation) == (0, 1.0, SPREAD)


def test_trials_narrow_its_spread() -> None:
    power = Calibration.of(FRONTIER, measured(1.3)).power
    assert power.factor == pytest.approx(1.3, rel=0.03)
    assert power.deviation < 0.25 * SPREAD
