"""The energy of a token at a strategy's own GAS, from samples and from power figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.measurement.energy import joules_per_token
from autotune.measurement.metrics import AccumulationMeasurement, metrics
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from tests.autotune.records import MACHINE, MODEL, strategy

GPUS_ALONE = replace(MACHINE, host_watt=0.0)
LAYOUT = strategy(pp=8, gas=64)
TOKENS_OF_A_SAMPLE = 2048


def energy(
    subject: Strategy, *, seconds: float, machine: Machine = MACHINE, sampled: float | None = None
) -> float:
    found = joules_per_token(
        MODEL,
        machine,
        subject,
        iteration_time_s=seconds,
        timed=[(8, (2.0, 2.2)), (16, (3.5, 3.7))],
        sampled=sampled,
    )
    assert found is not None
    return found


def test_an_energy_sample_at_the_own_gas_stands_plus_hosts() -> None:
    subject = LAYOUT.with_accumulation(8)
    found = joules_per_token(
        MODEL, MACHINE, subject, iteration_time_s=2.0, timed=[(8, (2.0, 2.0))], sampled=3.0
    )
    assert MACHINE.host_watt
    hosts = 2.0 * 2 * MACHINE.host_watt / (8 * TOKENS_OF_A_SAMPLE)
    assert found == pytest.approx(3.0 + hosts)


def test_energy_samples_of_smaller_gas_are_carried_to_the_own() -> None:
    """What draws as the figures say there is foreseen as by the figures; half as much, as half."""
    tokens = [gas * TOKENS_OF_A_SAMPLE for gas in (8, 16)]
    drawn = [
        energy(LAYOUT.with_accumulation(gas), seconds=seconds, machine=GPUS_ALONE) * each
        for gas, seconds, each in ((8, 2.1, tokens[0]), (16, 3.6, tokens[1]))
    ]
    sampled = sum(drawn) / sum(tokens)
    plain = energy(LAYOUT, seconds=12.0, machine=GPUS_ALONE)
    assert plain < 0.97 * sampled  # less of the time is the pipeline's ramp
    for share in (1.0, 0.5):
        found = energy(LAYOUT, seconds=12.0, machine=GPUS_ALONE, sampled=share * sampled)
        assert found == pytest.approx(share * plain)


def test_energy_grows_with_the_time_that_was_measured() -> None:
    assert energy(LAYOUT, seconds=24.0) == pytest.approx(2 * energy(LAYOUT, seconds=12.0))


def test_rates_of_a_trial_are_of_nodes_and_of_energy() -> None:
    timed = [AccumulationMeasurement(gradient_accumulation_steps=64, iteration_times_s=(10.0,))]
    figures = metrics(MODEL, MACHINE, LAYOUT, timed, power_factor=1.2)
    assert figures.tokens_per_node_hour == pytest.approx(figures.tokens_per_s_per_gpu * 8 * 3600)
    assert figures.tokens_per_joule
    assert not figures.energy_sampled
    more = metrics(MODEL, MACHINE, LAYOUT, timed, gpu_joules_per_token=1.0)
    assert more.energy_sampled
    unknown = metrics(MODEL, replace(MACHINE, gpu_max_watt=None), LAYOUT, timed)
    assert unknown.tokens_per_joule is None
    assert not unknown.energy_sampled
