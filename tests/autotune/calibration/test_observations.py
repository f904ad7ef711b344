"""What of trials becomes an observation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.calibration import Calibration, Observation
from autotune.calibration.observations import observations_of
from autotune.calibration.power import PowerScale
from autotune.cost_model import Parameters
from autotune.measurement.energy import joules_per_token
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Accumulation, Trial
from tests.autotune import records
from tests.autotune.calibration.examples import SPACE, forecast
from tests.autotune.cost_model.examples import FRONTIER, GPT_22B
from tests.autotune.records import MACHINE, MODEL, strategy

STRATEGY = strategy(gas=64)


def accumulation(gas: int, seconds: float, *, measured: bool = True) -> Accumulation:
    return Accumulation(
        gradient_accumulation_steps=gas,
        global_batch_size=2 * gas,
        iteration_time_s=seconds,
        tokens_per_s=4096 * gas / seconds,
        measured=measured,
    )


def trial(**changes: Any) -> Trial:
    plain: dict[str, Any] = {
        "strategy": STRATEGY,
        "accumulations": [
            accumulation(4, 3.0),
            accumulation(8, 5.0),
            accumulation(64, 33.0, measured=False),
        ],
        "peak_memory_gib_by_rank": [30.0, 41.0, 12.0],
    }
    return records.trial(**plain | changes)


def test_the_longest_measured_step_and_the_fullest_rank() -> None:
    [observation] = observations_of(MODEL, [trial()], machine=MACHINE)
    assert observation.transformer is MODEL
    assert observation.strategy.gradient_accumulation_steps == 8
    layout = observation.strategy.with_accumulation(STRATEGY.gradient_accumulation_steps)
    assert layout == STRATEGY
    assert observation.iteration_time_s == 5.0
    assert observation.peak_memory_gib == 41.0
    assert observation.fitted is True
    assert observation.gpu_joules_per_token is None


def test_sampled_energy_is_carried_to_the_step_that_is_observed() -> None:
    """GPUs wait for the pipeline for less of the longer step, which so takes less for a token."""
    gpus = replace(MACHINE, host_watt=0.0)
    drawn = []
    for gas, seconds in ((4, 3.0), (8, 5.0)):
        ran = STRATEGY.with_accumulation(gas)
        joules = joules_per_token(MODEL, gpus, ran, iteration_time_s=seconds, timed=())
        assert joules is not None
        drawn.append((joules, gas))
    sampled = sum(joules * gas for joules, gas in drawn) / sum(gas for _, gas in drawn)
    [observation] = observations_of(MODEL, [trial(gpu_joules_per_token=sampled)], machine=MACHINE)
    assert observation.gpu_joules_per_token == pytest.approx(drawn[1][0])
    assert drawn[1][0] < 0.97 * sampled
    known = PowerScale.of(MACHINE, [observation], Parameters.default(MACHINE))
    assert known.factor == pytest.approx(1.0)


def test_sampled_energy_stays_where_no_power_figures_are_known() -> None:
    unknown = replace(MACHINE, gpu_max_watt=None)
    [observation] = observations_of(MODEL, [trial(gpu_joules_per_token=0.5)], machine=unknown)
    assert observation.gpu_joules_per_token == 0.5


def test_out_of_memory_says_that_alone() -> None:
    """What was allocated when it failed is less than what it needs."""
    [observation] = observations_of(
        MODEL, [trial(state=TrialState.OOM, accumulations=[])], machine=MACHINE
    )
    assert observation.fitted is False
    assert observation.peak_memory_gib is None
    assert observation.iteration_time_s is None
    assert observation.strategy.gradient_accumulation_steps == 8  # the largest that it tried


@pytest.mark.parametrize("purpose", ["search", "confirmation"])
def test_memory_ran_out_within_the_strategys_micro_batches(purpose: str) -> None:
    """A pipeline of four stages that runs three micro-batches was never asked for four."""
    few = replace(STRATEGY, gradient_accumulation_steps=3)
    failed = trial(state=TrialState.OOM, accumulations=[], strategy=few, purpose=purpose)
    [observation] = observations_of(MODEL, [failed], machine=MACHINE)
    assert observation.strategy.gradient_accumulation_steps == 3


def test_a_confirmation_ran_out_of_memory_at_its_own_gas() -> None:
    failed = trial(state=TrialState.OOM, accumulations=[], purpose="confirmation")
    [observation] = observations_of(MODEL, [failed], machine=MACHINE)
    assert observation.strategy.gradient_accumulation_steps == 64


def test_memory_that_was_not_read_is_not_known() -> None:
    [observation] = observations_of(MODEL, [trial(peak_memory_gib_by_rank=[])], machine=MACHINE)
    assert observation.peak_memory_gib is None
    assert observation.fitted is True


@pytest.mark.parametrize("state", sorted(set(TrialState) - {TrialState.OK, TrialState.OOM}))
def test_other_ends_say_nothing_of_a_strategy(state: TrialState) -> None:
    assert observations_of(MODEL, [trial(state=state)], machine=MACHINE) == []


def test_each_trial_speaks_for_itself() -> None:
    """Repetitions too: their noise is what measurements scatter by."""
    trials = [
        trial(),
        trial(state=TrialState.CRASHED),
        trial(purpose="confirmation", accumulations=[accumulation(64, 32.0)]),
    ]
    observations = observations_of(MODEL, trials, machine=MACHINE)
    assert [each.iteration_time_s for each in observations] == [5.0, 32.0]


def test_both_peaks_of_a_trial_tell_what_the_allocator_keeps() -> None:
    """The nearer they are, the less it keeps, and the more is allocated."""
    layout = SPACE[0]
    usual = forecast(Calibration.of(FRONTIER), [layout])
    reserved = float(usual.reserved_gib[0])
    shares = []
    for cached_gib in (1.0, 8.0):
        seen = Observation(
            transformer=GPT_22B,
            strategy=layout,
            peak_memory_gib=reserved,
            peak_allocated_gib=reserved - cached_gib,
            fitted=True,
        )
        learned = Calibration.of(FRONTIER, [seen])
        shares.append(float(learned.parameters.cached_share))
        after = forecast(learned, [layout])
        assert float(after.reserved_gib[0]) == pytest.approx(reserved, rel=0.1)
        assert float(after.allocated_gib[0]) == pytest.approx(reserved - cached_gib, rel=0.2)
    assert shares[0] < shares[1]
