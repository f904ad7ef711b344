"""The figures of a recommendation: memory, time, energy and counts, and the curve over GAS."""

from __future__ import annotations

import math

import pytest

from autotune.recommendation.recommendation import recommend
from autotune.schemas.choices import TrialState
from autotune.schemas.resolution import transformer_of
from search_spaces.catalog import load_model
from search_spaces.fields import as_table, checked
from search_spaces.machine import Machine
from tests.autotune.cost_model.study import SETTINGS, TERA
from tests.autotune.recommendation.examples import (
    A,
    B,
    C,
    D,
    answer,
    campaign,
    measured_otherwise,
    trial,
)
from tests.autotune.records import MACHINE, MODEL

# --- a ranked strategy's own ---------------------------------------------------------------------


def test_headroom_is_what_the_fullest_gpu_has_left() -> None:
    recommendation = answer(
        [trial(1, A, seconds=1.0, peak=50.5), trial(2, B, seconds=2.0, peak=None)]
    )
    assert recommendation.best.memory_headroom_gib == pytest.approx(MACHINE.memory_gib - 50.5)
    assert recommendation.runners_up[0].memory_headroom_gib is None
    assert recommendation.best.predicted_iteration_time_s == 9.9


def test_what_the_gpus_drew_is_the_median_of_the_trials_that_say() -> None:
    """Beside what a token takes on all nodes, hosts included, as everywhere else."""
    drawn = [
        trial(n, A, seconds=1.0).model_copy(update={"gpu_joules_per_token": joules})
        for n, joules in enumerate((0.5, None, 0.7, 0.9), start=1)
    ]
    recommendation = answer([*drawn, trial(5, B, seconds=2.0)])
    best, behind = recommendation.best, recommendation.runners_up[0]
    assert best.gpu_joules_per_token == pytest.approx(0.7)
    assert behind.gpu_joules_per_token is None
    for each in (best, behind):
        assert each.metrics.tokens_per_joule is not None
        assert each.joules_per_token == pytest.approx(1 / each.metrics.tokens_per_joule)
    [energies] = [f.points for f in recommendation.pareto if f.against == "joules_per_token"]
    assert best.joules_per_token in [point.joules_per_token for point in energies]


# --- what it costs -------------------------------------------------------------------------------


def test_training_takes_whole_iterations_of_the_global_batch() -> None:
    recommendation = answer([trial(1, A, seconds=2.0)], tokens=1e9)
    batch = A.global_batch_size(8)
    assert recommendation.training.iterations == math.ceil(1e9 / (batch * 2048))
    assert recommendation.training.days == pytest.approx(
        recommendation.training.iterations * 2.0 / 86400
    )
    assert recommendation.training.node_hours == pytest.approx(
        recommendation.training.days * 24 * 2
    )


def test_without_tokens_a_training_is_of_twenty_a_parameter() -> None:
    subject = campaign(tokens=None)
    trials = [trial(1, A, seconds=2.0)]
    tiny = subject.model_copy(update={"model": load_model("tiny")})
    for question in (subject, tiny):
        found = recommend(question, trials)
        assert found is not None
        assert found.training.tokens == 20 * transformer_of(question.model).parameters
        assert found.training.assumed


def test_energy_of_a_training_is_what_its_own_layout_drew() -> None:
    """What was sampled or calibrated of its trial, and not what its rate alone would say."""
    plain = answer([trial(1, A, seconds=20.0)]).training
    assert plain.energy_mwh
    assert not plain.energy_sampled
    one = trial(1, A, seconds=20.0)
    sampled = measured_otherwise(one, tokens_per_joule=0.5, energy_sampled=True)
    found = answer([sampled]).training
    tokens = found.iterations * A.global_batch_size(8) * 2048
    assert found.energy_mwh == pytest.approx(tokens / 0.5 / 3.6e9)
    assert found.energy_sampled
    assert found.days == plain.days
    assert MACHINE.host_watt is not None
    for each in (plain, found):
        assert each.energy_mwh is not None
        hosts_mwh = each.node_hours * MACHINE.host_watt / 1e6
        assert each.gpu_energy_mwh == pytest.approx(each.energy_mwh - hosts_mwh)


def test_energy_of_the_gpus_is_what_the_frontier_study_printed() -> None:
    """284 GJ for 20 tokens per parameter of the 22B, at the rate that it printed."""
    setting, percent_of_peak = SETTINGS[0]
    assert MACHINE.peak_tflops is not None
    flops = MODEL.hardware_flops(setting.batch, "full")
    seconds = flops / (percent_of_peak / 100 * setting.gpus * MACHINE.peak_tflops * TERA)
    training = answer([trial(1, setting.strategy, seconds=seconds)], tokens=20 * 22e9).training
    assert training.gpu_energy_mwh is not None
    assert training.gpu_energy_mwh * 3.6 == pytest.approx(284, rel=0.15)


@pytest.mark.parametrize("unknown", ["gpu_max_watt", "host_watt"])
def test_energy_is_not_given_where_power_is_not_known(unknown: str) -> None:
    shape = checked(Machine, as_table(MACHINE) | {unknown: None})
    bare = measured_otherwise(trial(1, A, seconds=1.0), tokens_per_joule=None)
    found = answer([bare], machine=shape)
    assert found.training.energy_mwh is None
    assert (found.training.gpu_energy_mwh is None) == (unknown == "gpu_max_watt")


def test_counts_are_those_of_all_trials() -> None:
    trials = [
        trial(1, A, seconds=1.0),
        trial(2, B, state=TrialState.OOM, node_hours=0.25),
        trial(3, C, state=TrialState.CANCELLED, node_hours=None),
        trial(4, D, state=TrialState.PENDING, node_hours=None),
        trial(5, D, state=TrialState.LOST),
    ]
    recommendation = answer(trials)
    assert (recommendation.trials, recommendation.failures, recommendation.node_hours) == (
        5,
        2,
        1.25,
    )


def test_artefacts_are_named() -> None:
    recommendation = recommend(campaign(), [trial(1, A, seconds=1)], artefacts=["train.sbatch"])
    assert recommendation is not None
    assert recommendation.artefacts == ["train.sbatch"]


# --- the GAS curve -------------------------------------------------------------------------------


def test_every_power_of_two_follows_from_the_measured_two() -> None:
    subject = A.with_accumulation(24)
    recommendation = answer([trial(1, subject, seconds=2.4, probes=(4, 8))])
    by_gas = {one.gradient_accumulation_steps: one for one in recommendation.accumulations}
    assert list(by_gas) == [1, 2, 4, 8, 16, 24]
    assert [gas for gas, one in by_gas.items() if one.measured] == [4, 8]
    assert by_gas[24].iteration_time_s == pytest.approx(2.4)
    assert by_gas[24].global_batch_size == subject.global_batch_size(8)
    assert by_gas[16].tokens_per_s == pytest.approx(
        by_gas[16].global_batch_size * 2048 / by_gas[16].iteration_time_s
    )


def test_a_confirmation_adds_a_measured_point() -> None:
    trials = [
        trial(1, A, seconds=1.6, probes=(4, 8)),
        trial(2, A, seconds=1.5, purpose="confirmation"),
        trial(3, B, seconds=9.0, probes=(4, 8)),
    ]
    measured = {
        one.gradient_accumulation_steps: one.iteration_time_s
        for one in answer(trials).accumulations
        if one.measured
    }
    assert measured == pytest.approx({4: 1.6 * 7 / 19, 8: 1.6 * 11 / 19, 16: 1.5})


def test_a_stored_prediction_is_not_taken_for_a_measurement() -> None:
    one = trial(1, A, seconds=1.6, probes=(4, 8))
    stored = one.accumulations[0].model_copy(
        update={"gradient_accumulation_steps": 2, "measured": False, "iteration_time_s": 77.0}
    )
    recommendation = answer(
        [one.model_copy(update={"accumulations": [*one.accumulations, stored]})]
    )
    by_gas = {one.gradient_accumulation_steps: one for one in recommendation.accumulations}
    assert not by_gas[2].measured
    assert by_gas[2].iteration_time_s == pytest.approx(1.6 * 5 / 19)
