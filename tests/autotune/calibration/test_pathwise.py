"""Draws of many strategies at once: they spread as the covariance says that a few do."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.calibration import Calibration
from autotune.calibration.pathwise import mean_and_draws
from autotune.cost_model.columns import Columns
from tests.autotune.calibration.examples import GENERAL, SPACE, lattice, trials
from tests.autotune.cost_model.examples import FRONTIER, GPT_22B

COUNT = 4000
FEW = SPACE[:60]


@pytest.mark.parametrize("known", [0, 15])
def test_draws_spread_as_the_covariance_says(known: int) -> None:
    observed = trials(FEW[:known], GENERAL, seed=1)
    time = Calibration.of(FRONTIER, observed).time
    columns = Columns.of(GPT_22B, lattice(FEW))
    generator = np.random.default_rng(0)
    mean, draws = mean_and_draws(time, columns, count=COUNT, generator=generator)
    exact, variance, _ = time.predict(columns)
    assert mean == pytest.approx(exact, abs=1e-9)
    assert draws.shape == (COUNT, len(FEW))
    deviation = np.sqrt(variance)
    assert np.abs(draws.mean(axis=0) - exact).max() < 5 * deviation.max() / np.sqrt(COUNT)
    assert np.median(draws.std(axis=0) / deviation) == pytest.approx(1.0, abs=0.1)
    slow = time.draws(columns, count=COUNT, generator=generator)
    theirs, ours = np.corrcoef(slow.T), np.corrcoef(draws.T)
    assert np.abs(ours - theirs).mean() < 0.05


def test_draws_agree_with_what_was_measured() -> None:
    """Many trials of little noise pin the strategies that they ran."""
    observed = trials(FEW[:20], GENERAL, seed=2, noise=0.005)
    time = Calibration.of(FRONTIER, observed).time
    columns = Columns.of(GPT_22B, lattice(FEW))
    _, draws = mean_and_draws(time, columns, count=500, generator=np.random.default_rng(0))
    spread = draws.std(axis=0)
    assert np.median(spread[:20]) < 0.7 * np.median(spread[20:])
