"""What a campaign's best saves against the layout that was measured first."""

from __future__ import annotations

import pytest

from autotune.schemas.trials import Trial
from tests.autotune.recommendation.examples import A, B, answer, strategy, trial

HOURS_PER_DAY = 24.0


def against(seconds: float) -> list[Trial]:
    """A best of one second on two nodes, and a baseline; half a node-hour was spent on each."""
    return [trial(1, A, seconds=seconds, purpose="baseline"), trial(2, B, seconds=1.0)]


def test_what_a_training_saves_is_the_difference_of_two_trainings() -> None:
    found = answer(against(3.0), tokens=1e12)
    assert found.saving is not None
    assert found.saving.tokens == 1e12
    assert found.saving.days == pytest.approx(2 * found.training.days, rel=1e-4)
    assert found.saving.node_hours == pytest.approx(2 * HOURS_PER_DAY * found.saving.days)
    assert found.saving.energy_mwh is not None
    assert found.saving.energy_mwh > 0.0


def test_a_campaign_is_repaid_once_its_node_hours_are_saved() -> None:
    found = answer(against(3.0), tokens=1e12)
    assert found.saving is not None
    repaid = found.saving.repaid_after_tokens
    assert repaid == pytest.approx(1e12 * found.node_hours / found.saving.node_hours)


def test_more_nodes_may_save_days_and_cost_node_hours() -> None:
    wide = trial(2, strategy(tp=2, nodes=4), seconds=1.0)
    found = answer([trial(1, A, seconds=1.5, purpose="baseline"), wide])
    assert found.saving is not None
    assert found.saving.days > 0.0
    assert found.saving.node_hours < 0.0
    assert found.saving.repaid_after_tokens is None


def test_nothing_is_saved_against_itself_or_against_what_has_no_figures() -> None:
    assert answer([trial(1, A, seconds=2.0, purpose="baseline")]).saving is None
    assert answer([trial(1, A, seconds=2.0)]).saving is None


def test_a_training_that_nobody_stated_is_said_to_be_assumed() -> None:
    assert not answer(against(2.0), tokens=1e9).training.assumed
    assert answer(against(2.0), tokens=None).training.assumed
