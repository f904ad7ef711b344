"""How probable it is that memory suffices: from trials that ran out of it, that did not, and from
peaks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from autotune.calibration import Calibration, Observation
from autotune.calibration.sample import EDGE
from autotune.cost_model import perturbed
from autotune.cost_model.columns import Columns
from tests.autotune.calibration.examples import GENERAL, SPACE, forecast, lattice, needs, trials
from tests.autotune.cost_model.examples import FRONTIER, GPT_22B, strategy

GENERALLY = Calibration.of(FRONTIER)
AROUND = SPACE[:200]
DOUBTFUL = [
    AROUND[at] for at in np.argsort(np.abs(forecast(GENERALLY, AROUND).fit_probability - 0.5))[:8]
]
"""Layouts of which general knowledge cannot tell."""


def labels(*fitted: bool) -> list[Observation]:
    return [
        Observation(transformer=GPT_22B, strategy=each, fitted=label)
        for each, label in zip(DOUBTFUL, fitted, strict=False)
    ]


def test_general_knowledge_is_sure_of_extremes_alone() -> None:
    sizes = needs(AROUND, GENERAL)
    predicted = forecast(GENERALLY, AROUND).fit_probability
    assert (predicted[sizes < 20] > 0.99).all()
    assert (predicted[sizes > 150] < 0.01).all()
    doubtful = forecast(GENERALLY, DOUBTFUL)
    assert (np.abs(doubtful.fit_probability - 0.5) < 0.15).all()
    assert (np.abs(doubtful.memory_gib / (float(GENERAL.usable_memory) * 64) - 1) < 0.1).all()


def test_it_falls_with_the_memory_that_is_needed() -> None:
    """Strictly by what is expected, where all are known alike: one layout, ever larger batches."""
    chosen = [strategy(micro_batch_size=b, activation_checkpointing="none") for b in range(1, 33)]
    predicted = forecast(GENERALLY, chosen)
    assert (np.diff(predicted.memory_gib) > 0).all()
    assert (np.diff(predicted.fit_probability) <= 1e-12).all()
    assert predicted.fit_probability[0] > 0.85
    assert predicted.fit_probability[-1] < 0.1


@pytest.mark.parametrize("calibrated", [False, True])
def test_it_rises_with_the_memory_there_is(calibrated: bool) -> None:
    calibration = Calibration.of(FRONTIER, labels(False, True)) if calibrated else GENERALLY
    columns = Columns.of(GPT_22B, lattice(AROUND))
    results = [
        replace(calibration, machine=replace(FRONTIER, memory_gib=gib)).fit_probability(columns)
        for gib in (16, 40, 64, 80, 192)
    ]
    assert (np.diff(results, axis=0) >= 0).all()
    assert np.mean(results[-1] - results[0]) > 0.3


def test_it_falls_with_the_headroom_that_is_to_be_left() -> None:
    """A little is left anyway, of what cannot be used; a peak beyond it is as good as a failure."""
    columns = Columns.of(GPT_22B, lattice(AROUND))
    results = [GENERALLY.fit_probability(columns, headroom_gib=gib) for gib in (0, 1, 16, 32, 48)]
    np.testing.assert_array_equal(results[0], results[1])
    assert (np.diff(results[1:], axis=0) <= 0).all()
    assert np.mean(results[0] - results[-1]) > 0.3
    sizes = needs(AROUND, GENERAL)
    at = int(np.argmin(np.abs(sizes - 40)))
    seen = [Observation(transformer=GPT_22B, strategy=AROUND[at], peak_memory_gib=40, fitted=True)]
    same = Columns.of(GPT_22B, lattice([AROUND[at]]))
    after = Calibration.of(FRONTIER, seen)
    assert after.fit_probability(same)[0] >= 0.98
    assert after.fit_probability(same, headroom_gib=20)[0] >= 0.98
    assert after.fit_probability(same, headroom_gib=26)[0] <= 0.02


@pytest.mark.parametrize("count", [1, 4, 8])
@pytest.mark.parametrize(("ran", "least"), [(False, 0.2), (True, 0.15)])
def test_layouts_that_ran_or_ran_out_of_memory(ran: bool, least: float, count: int) -> None:
    """Theirs rises or falls, and that of their like with it."""
    before = forecast(GENERALLY, DOUBTFUL).fit_probability
    after = forecast(Calibration.of(FRONTIER, labels(*[ran] * count)), DOUBTFUL).fit_probability
    rise = after - before if ran else before - after
    assert (rise[:count] > least).all()
    assert (rise > 0.0).all()


def test_more_labels_say_more() -> None:
    results = [
        forecast(Calibration.of(FRONTIER, labels(*[False] * count)), DOUBTFUL).fit_probability
        for count in (0, 2, 8)
    ]
    means = [float(np.mean(each)) for each in results]
    assert means[0] > means[1] + 0.1 > means[2] + 0.15


def test_an_expected_label_says_next_to_nothing() -> None:
    """That a small layout ran, or one far beyond any memory failed, was known before."""
    sizes = needs(AROUND, GENERAL)
    small, vast = AROUND[int(np.argmin(sizes))], AROUND[int(np.argmax(sizes))]
    seen = [
        Observation(transformer=GPT_22B, strategy=small, fitted=True),
        Observation(transformer=GPT_22B, strategy=vast, fitted=False),
    ]
    before = forecast(GENERALLY, AROUND).fit_probability
    after = forecast(Calibration.of(FRONTIER, seen), AROUND).fit_probability
    assert np.max(np.abs(after - before)) < 0.04


def test_a_surprising_label_says_much() -> None:
    """A layout of which nobody doubted that it fits."""
    sizes = needs(AROUND, GENERAL)
    at = int(np.argmin(np.abs(sizes - 40)))
    before = forecast(GENERALLY, [AROUND[at]])
    seen = [Observation(transformer=GPT_22B, strategy=AROUND[at], fitted=False)]
    after = forecast(Calibration.of(FRONTIER, seen), [AROUND[at]])
    assert before.fit_probability[0] > 0.95
    assert after.fit_probability[0] < 0.6
    assert after.memory_gib[0] > 1.2 * before.memory_gib[0]


def test_it_is_a_normal_distribution_of_what_is_needed() -> None:
    """Uncertain as memory is, and as the edge of memory itself is for one run."""
    columns = Columns.of(GPT_22B, lattice(DOUBTFUL))
    mean, _, variance = GENERALLY.memory.predict(columns, labelled=True)
    deviation = np.sqrt(variance + EDGE**2)
    expected = norm.cdf((np.log(64) - mean) / deviation)
    results = GENERALLY.fit_probability(columns)
    np.testing.assert_allclose(results, expected)
    known = trials(SPACE[:60], GENERAL, noise=0.003)
    sure = Calibration.of(FRONTIER, known).fit_probability(columns)
    assert ((sure > 0.05) & (sure < 0.95)).any()


def test_peaks_sharpen_it() -> None:
    """After twenty peaks of a machine it says of nearly every layout what happens, and rightly."""
    scores: dict[str, list[float]] = {"before": [], "after": []}
    for seed in range(5):
        world = perturbed(GENERAL, seed=seed)
        usable = 64 * float(GENERAL.usable_memory)
        fits = needs(SPACE[200:400], world) <= usable
        seen = trials(SPACE[:20], world, seed=seed)
        for name, calibration in (
            ("before", GENERALLY),
            ("after", Calibration.of(FRONTIER, seen)),
        ):
            probability = forecast(calibration, SPACE[200:400]).fit_probability
            scores[name].append(float(np.mean((probability - fits) ** 2)))
    assert np.mean(scores["after"]) < 0.7 * np.mean(scores["before"])
    assert np.mean(scores["after"]) < 0.03


def test_a_probability_is_no_empty_word() -> None:
    """Over other plausible machines: of layouts that get 60 to 90 % most fit, of those that get 10
    to 40 % few."""
    chosen = SPACE[:400]
    predicted = forecast(GENERALLY, chosen).fit_probability
    sizes = np.array([needs(chosen, perturbed(GENERAL, seed=seed)) for seed in range(30)])
    fits = np.mean(sizes <= 64 * float(GENERAL.usable_memory), axis=0)
    probable, improbable = (
        (predicted > 0.6) & (predicted < 0.9),
        (predicted > 0.1) & (predicted < 0.4),
    )
    assert min(probable.sum(), improbable.sum()) > 20
    assert np.mean(fits[probable]) > 0.6
    assert np.mean(fits[improbable]) < 0.4
