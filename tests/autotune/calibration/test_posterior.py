"""Constants and what is left over, known together: against the formulas written out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autotune.calibration.mixture import NOISES, RESIDUALS, Mixture
from autotune.calibration.observations import Observation, memory_sample, time_sample
from autotune.calibration.posterior import (
    Likeness,
    Linear,
    Posterior,
    Scales,
    coordinates,
    shared,
)
from autotune.calibration.quantity import Quantity
from autotune.calibration.sample import EDGE, Sample
from autotune.cost_model import perturbed
from autotune.cost_model.columns import Columns
from tests.autotune.calibration.examples import (
    GENERAL,
    SPACE,
    lattice,
    measured_world,
    observations,
    trials,
)
from tests.autotune.cost_model.examples import FRONTIER, GPT_22B, columns, strategy

TIME = Quantity(machine=FRONTIER, prior=GENERAL, of_memory=False)
SCALES = Scales(residual=0.1, noise=0.03)
HELD_OUT = Columns.of(GPT_22B, lattice(SPACE[100:130]))
NONE = np.zeros(30)


def near_sample() -> Sample:
    """Measurements close to the formulas: none of them is taken for one that is far off."""
    return time_sample(trials(SPACE[:8], GENERAL, noise=0.005), FRONTIER)


def posterior_of(sample: Sample, *, start: Linear | None = None) -> Posterior:
    likeness = Likeness.of(sample.columns)
    return Posterior.of(TIME, sample, SCALES, likeness=likeness, start=start)


def test_prediction_is_that_of_one_gaussian() -> None:
    """With the formulas linearised: one covariance `S S^T + r^2 K + noise^2`, conditioned on what
    was observed (Rasmussen and Williams 2006, section 2.7)."""
    sample = near_sample()
    posterior = posterior_of(sample)
    value, slopes = TIME.linearised(posterior.z, sample.columns, np.zeros(8))
    new_value, new_slopes = TIME.linearised(posterior.z, HELD_OUT, NONE)
    seen, new = coordinates(sample.columns), coordinates(HELD_OUT)
    r2 = SCALES.residual**2
    covariance = slopes @ slopes.T + r2 * shared(seen, seen) + SCALES.noise**2 * np.eye(8)
    crossed = new_slopes @ slopes.T + r2 * shared(new, seen)
    own = np.sum(new_slopes**2, axis=1) + r2
    off = sample.log_value - (value - slopes @ posterior.z)
    expected = new_value - new_slopes @ posterior.z + crossed @ np.linalg.solve(covariance, off)
    variance = own - np.sum(crossed * np.linalg.solve(covariance, crossed.T).T, axis=1)
    mean, found = posterior.predict(HELD_OUT, NONE, posterior.correlation(HELD_OUT))
    np.testing.assert_allclose(mean, expected, atol=2e-4)
    np.testing.assert_allclose(found, variance, rtol=1e-3)


def test_covariance_of_the_constants() -> None:
    """`(I + S^T C^-1 S)^-1`, never above what was unknown before."""
    sample = near_sample()
    posterior = posterior_of(sample)
    slopes = TIME.linearised(posterior.z, sample.columns, np.zeros(8))[1]
    places = coordinates(sample.columns)
    noise = SCALES.residual**2 * shared(places, places) + SCALES.noise**2 * np.eye(8)
    precision = slopes.T @ np.linalg.solve(noise, slopes) + np.eye(len(posterior.z))
    # The last step moves the point of linearisation by a few hundredths of a deviation.
    np.testing.assert_allclose(posterior.covariance, np.linalg.inv(precision), atol=5e-3)
    assert (np.diag(posterior.covariance) <= 1 + 1e-9).all()


def test_nothing_observed_is_what_was_known() -> None:
    posterior = posterior_of(time_sample([], FRONTIER))
    slopes = TIME.linearised(0 * posterior.z, HELD_OUT, NONE)[1]
    mean, variance = posterior.predict(HELD_OUT, NONE, posterior.correlation(HELD_OUT))
    assert (posterior.z == 0).all()
    np.testing.assert_allclose(posterior.covariance, np.eye(len(posterior.z)))
    np.testing.assert_allclose(mean, TIME.log_value(posterior.z, HELD_OUT, NONE))
    np.testing.assert_allclose(variance, SCALES.residual**2 + np.sum(slopes**2, axis=1))
    assert posterior.log_evidence == pytest.approx(0, abs=1e-9)


def test_a_start_elsewhere_ends_at_the_same_place() -> None:
    sample = time_sample(trials(SPACE[:20], perturbed(GENERAL, seed=3)), FRONTIER)
    there = posterior_of(sample)
    elsewhere = posterior_of(sample, start=Linear.of(TIME, sample, np.full(len(there.z), 0.5)))
    mean, other = (
        each.predict(HELD_OUT, NONE, each.correlation(HELD_OUT))[0] for each in (there, elsewhere)
    )
    np.testing.assert_allclose(mean, other, atol=0.01)


@pytest.mark.parametrize("noise", [0.01, 0.1])
def test_evidence_prefers_the_noise_that_there_is(noise: float) -> None:
    seconds, gib = measured_world(SPACE[:60], seed=2, residual=0.0, noise=noise)
    sample = time_sample(observations(SPACE[:60], seconds, gib), FRONTIER)
    mixture = Mixture.of(TIME, sample)
    mean = np.exp(sum(weight * np.log(each.scales.noise) for weight, each in mixture.members))
    assert 0.4 * noise < mean < 2.2 * noise


@pytest.mark.parametrize("residual", [0.02, 0.3])
def test_evidence_prefers_the_residual_that_there_is(residual: float) -> None:
    seconds, gib = measured_world(SPACE[:60], seed=0, residual=residual, noise=0.01)
    sample = time_sample(observations(SPACE[:60], seconds, gib), FRONTIER)
    mixture = Mixture.of(TIME, sample)
    mean = np.exp(sum(weight * np.log(each.scales.residual) for weight, each in mixture.members))
    assert mean < 0.09 if residual < 0.1 else mean > 0.13


def test_a_mixture_is_of_probabilities() -> None:
    sample = near_sample()
    mixture = Mixture.of(TIME, sample)
    weights = [weight for weight, _ in mixture.members]
    assert sum(weights) == pytest.approx(1)
    assert min(weights) > 0
    assert mixture.best is mixture.members[int(np.argmax(weights))][1]
    assert {each.scales.residual for _, each in mixture.members} <= set(RESIDUALS)
    assert {each.scales.noise for _, each in mixture.members} <= set(NOISES)


def test_variance_of_a_mixture() -> None:
    """Within its members and between them; a measurement's is larger by their noise."""
    mixture = Mixture.of(TIME, near_sample())
    mean, variance, measured = mixture.predict(HELD_OUT)
    weights = np.array([weight for weight, _ in mixture.members])
    results = [
        each.predict(HELD_OUT, NONE, each.correlation(HELD_OUT)) for _, each in mixture.members
    ]
    first = sum(w * m for w, (m, _) in zip(weights, results, strict=True))
    second = sum(w * (v + m**2) for w, (m, v) in zip(weights, results, strict=True))
    np.testing.assert_allclose(mean, first)
    np.testing.assert_allclose(variance, second - first**2, rtol=1e-6)
    noise = sum(w * each.scales.noise**2 for w, each in mixture.members)
    np.testing.assert_allclose(measured - variance, noise)


def test_measurements_are_normal_near_and_count_little_far_off() -> None:
    sample = Sample(
        columns=columns(*SPACE[:4]), log_value=np.array([0.0, 0.03, 0.3, 3.0]), side=np.zeros(4)
    )
    target, variance = sample.normal(np.zeros(4), 0.03)
    assert target.tolist() == sample.log_value.tolist()
    assert variance[:2].tolist() == pytest.approx([0.03**2, 0.03**2])
    # With Student's t of 4 degrees the weight of an error e is 5/(4 + e^2).
    assert variance[2:].tolist() == pytest.approx([0.0009 * 104 / 5, 0.0009 * 10004 / 5])
    halved = replace(sample, weight=0.5).normal(np.zeros(4), 0.03)[1]
    assert halved[:2].tolist() == pytest.approx([2 * 0.03**2, 2 * 0.03**2])


def test_labels_move_what_is_on_the_wrong_side() -> None:
    """And hardly what is not; the further beyond the limit, the further."""
    limit = np.log(64.0)
    latent = limit + np.array([-0.5, 0.0, 0.2, 0.5])
    for side in (1.0, -1.0):
        sample = Sample(
            columns=columns(*SPACE[:4]),
            log_value=np.full(4, limit),
            side=np.full(4, side),
        )
        ordered = latent if side > 0 else 2 * limit - latent
        target, variance = sample.normal(ordered, 0.03)
        moved = side * (ordered - target)
        assert (moved >= 0).all()
        assert (moved[1:] > 0).all()
        assert variance[0] > 100 * variance[1]
        assert variance[1] > EDGE**2
        assert sample.labelled.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(("side", "weight"), [(1.0, 1.0), (-1.0, 1.0), (-1.0, 0.3)])
def test_a_label_has_the_slope_of_its_likelihood(side: float, weight: float) -> None:
    """The normal observation that stands for it pulls as hard as the likelihood does."""
    latent = np.log(64.0) + np.linspace(-0.1, 0.1, 5)
    sample = Sample(
        columns=columns(*SPACE[:5]),
        log_value=np.full(5, np.log(64.0)),
        side=np.full(5, side),
        weight=np.full(5, weight),
    )
    target, variance = sample.normal(latent, 0.03)
    for at in range(5):
        step = 1e-5 * np.eye(5)[at]
        above, below = (sample.log_likelihood(latent + s, 0.03) for s in (step, -step))
        slope = (above - below) / 2e-5
        assert (target - latent)[at] / variance[at] == pytest.approx(slope, rel=1e-3)


def test_likelihood_of_measurements() -> None:
    """Highest where the truth is; that of a label is a probability."""
    one = columns(*SPACE[:1])
    measured = Sample(columns=one, log_value=np.array([1.0]), side=np.array([0.0]))
    at = [measured.log_likelihood(np.array([x]), 0.03) for x in (0.9, 1.0, 1.1)]
    assert at[1] > at[0] == pytest.approx(at[2])
    fits, fails = (
        Sample(columns=one, log_value=np.array([1.0]), side=np.array([side]))
        for side in (1.0, -1.0)
    )
    for latent in (0.8, 1.0, 1.05):
        results = [np.exp(each.log_likelihood(np.array([latent]), 0.03)) for each in (fits, fails)]
        assert sum(results) == pytest.approx(1)
    assert fits.log_likelihood(np.array([1.0]), 0.03) == pytest.approx(np.log(0.5))


def test_samples_of_observations() -> None:
    """Times, peaks and labels go where they belong; nothing is made up for what is missing."""
    seen = [
        Observation(transformer=GPT_22B, strategy=SPACE[0], iteration_time_s=2.0),
        Observation(transformer=GPT_22B, strategy=SPACE[1], peak_memory_gib=32.0, fitted=True),
        Observation(transformer=GPT_22B, strategy=SPACE[2], fitted=False),
        Observation(transformer=GPT_22B, strategy=SPACE[3], fitted=True),
        Observation(transformer=GPT_22B, strategy=SPACE[4]),
    ]
    time, memory = time_sample(seen, FRONTIER), memory_sample(seen, FRONTIER)
    assert len(time.columns) == 1
    assert np.exp(time.log_value).tolist() == pytest.approx([2.0])
    assert np.exp(memory.log_value).tolist() == pytest.approx([32.0, 64.0, 64.0])
    assert memory.side.tolist() == [0, -1, 1]
    expected = [SPACE[at].micro_batch_size for at in (1, 2, 3)]
    assert memory.columns["micro_batch_size"].tolist() == expected


def test_likeness_of_strategies() -> None:
    """1 with itself, symmetric, a covariance, and less the further apart."""
    places = coordinates(Columns.of(GPT_22B, lattice(SPACE[:40])))
    alike = shared(places, places)
    np.testing.assert_allclose(np.diag(alike), 1)
    np.testing.assert_allclose(alike, alike.T)
    assert np.linalg.eigvalsh(alike).min() > -1e-9
    assert ((alike > 0) & (alike <= 1)).all()


def test_what_makes_strategies_unlike() -> None:
    """Another accumulation less than another cut; two doublings more than one; any choice much."""
    plain = strategy(tensor_parallel=1)
    others = [
        strategy(tensor_parallel=1, gradient_accumulation_steps=32),
        strategy(tensor_parallel=2),
        strategy(tensor_parallel=4),
        strategy(tensor_parallel=1, activation_checkpointing="none"),
        strategy(tensor_parallel=1, flash_attention=False),
    ]
    places = coordinates(columns(plain, *others))
    gas, twice, four_times, stored, unfused = shared(places[:1], places[1:])[0]
    assert 1 > gas > twice > four_times
    assert stored < twice
    assert unfused < twice
