"""How a result compares with the layout that was measured first."""

from __future__ import annotations

import pytest

from autotune.recommendation.baseline import baseline_result
from autotune.recommendation.recommendation import strategies_to_confirm
from autotune.schemas.choices import Objective, TrialState
from autotune.schemas.trials import Trial
from search_spaces.strategy import Strategy
from tests.autotune.recommendation.examples import (
    A,
    B,
    answer,
    campaign,
    half_per_joule,
    measured_otherwise,
    trial,
)
from tests.autotune.records import strategy


def comparison_after(state: TrialState, **changes: object) -> str:
    """The sentence on a baseline that ended so, before anything has succeeded."""
    result, speedup = baseline_result(
        campaign(), [trial(1, A, purpose="baseline", state=state).model_copy(update=changes)]
    )
    assert result is not None
    assert speedup is None
    assert result.metrics is None
    return result.comparison


def test_the_best_is_compared_with_the_baseline() -> None:
    found = answer([trial(1, A, seconds=2.0, purpose="baseline"), trial(2, B, seconds=1.0)])
    assert found.baseline is not None
    assert found.baseline.name == "a default layout"
    assert found.baseline.trial_number == 1
    assert found.baseline.metrics is not None
    assert found.speedup_over_baseline == pytest.approx(2.0)
    sentence = "The best is 2 times as fast as a default layout."
    assert found.baseline.comparison == sentence


def test_starts_of_knobs_do_not_count_as_the_baseline() -> None:
    ran = [trial(1, A, seconds=2.0, purpose="baseline"), trial(2, B, seconds=1.0)]
    found = answer([*ran, trial(3, A, seconds=1.5, purpose="knob")])
    assert found.baseline == answer(ran).baseline


def test_options_that_were_not_measured_are_named() -> None:
    line = "--tensor-model-parallel-size 2 --bf16 --tp-comm-overlap --manual-gc --lr 1"
    trials = [trial(1, A, seconds=2.0, purpose="baseline"), trial(2, B, seconds=1.0)]
    found = answer(trials, baseline=line)
    assert found.baseline is not None
    assert found.baseline.unread == ["--tp-comm-overlap", "--manual-gc"]
    assert found.baseline.comparison == (
        "The best is 2 times as fast as your own layout; this compares layouts only, "
        "without your --tp-comm-overlap, --manual-gc."
    )


def test_a_baseline_in_another_precision_says_so() -> None:
    """Megatron trains in fp32 unless its arguments say otherwise."""
    own = strategy(tp=2, precision="fp32")
    trials = [trial(1, own, seconds=20.0, purpose="baseline"), trial(2, B, seconds=1.0)]
    found = answer(trials, baseline="--tensor-model-parallel-size 2")
    assert found.baseline is not None
    assert found.baseline.comparison == (
        "The best is 20 times as fast as your own layout, which trains in fp32; "
        "neither --bf16 nor --fp16 is given, so Megatron trains in fp32."
    )


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        ("tokens_per_s_per_gpu", "is 2 times as fast per GPU as a default layout"),
        (
            "tokens_per_node_hour",
            "takes 0.5 times the node-hours of a default layout",
        ),
        ("tokens_per_joule", "times the energy of a default layout."),
    ],
)
def test_the_best_is_compared_by_the_objective(objective: Objective, words: str) -> None:
    trials = [trial(1, A, seconds=2.0, purpose="baseline"), trial(2, B, seconds=1.0)]
    found = answer(trials, objective=objective)
    assert found.baseline is not None
    assert words in found.baseline.comparison


def test_energy_at_another_batch_follows_the_baselines_power() -> None:
    """The same layout that drew twice as much at its own GAS does so at the best's."""
    small = strategy(tp=2, pp=4, gas=8)
    plain = probed(1, small, seconds=11.0, purpose="baseline")
    hungry = half_per_joule(plain)
    best = trial(2, strategy(tp=1, pp=8, gas=64), seconds=35.0)
    speedups = [
        answer([each, best], objective="tokens_per_joule").speedup_over_baseline
        for each in (plain, hungry)
    ]
    assert speedups[1] == pytest.approx(2 * (speedups[0] or 0.0), rel=0.1)


def test_a_difference_within_the_spread_is_called_one() -> None:
    found = answer([trial(1, A, seconds=1.01, purpose="baseline"), trial(2, B, seconds=1.0)])
    assert found.baseline is not None
    assert found.baseline.comparison == (
        "The best is no faster than a default layout: 1.01 times, within the spread."
    )
    assert found.saving is None
    assert 0.98 < (found.baseline.speedup_low or 0.0) < 1.0 < (found.baseline.speedup_high or 0.0)


def test_a_tenfold_gain_is_one_however_uneven_the_steps_are() -> None:
    uneven = measured_otherwise(trial(2, B, seconds=1.0), iteration_time_spread_s=1.06)
    found = answer([trial(1, A, seconds=21.2, purpose="baseline"), uneven])
    assert found.baseline is not None
    assert "21.2 times as fast" in found.baseline.comparison
    assert "spread" not in found.baseline.comparison


def test_a_baseline_alone_is_recommended_and_confirmed() -> None:
    trials = [trial(1, A, seconds=2.0, purpose="baseline")]
    found = answer(trials)
    assert found.best.strategy == trials[0].strategy
    assert found.speedup_over_baseline == 1.0
    assert found.baseline is not None
    assert found.baseline.comparison == ("A default layout is the best so far.")
    assert strategies_to_confirm(campaign(), trials) == [A]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (TrialState.OOM, "A default layout runs out of memory."),
        (TrialState.CRASHED, "A default layout crashed: a segmentation fault."),
        (TrialState.NODE_FAIL, "A default layout could not be measured: a segmentation fault."),
        (TrialState.PENDING, "A default layout is being measured."),
    ],
)
def test_a_baseline_that_failed_is_reported_as_failed(state: TrialState, words: str) -> None:
    assert comparison_after(state, error="a segmentation fault") == words


def probed(number: int, subject: Strategy, *, seconds: float, purpose: str) -> Trial:
    pipeline = subject.pipeline_parallel
    probes = (pipeline, 2 * pipeline)
    return trial(number, subject, seconds=seconds, probes=probes).model_copy(
        update={"purpose": purpose}
    )


def test_rates_are_compared_at_the_batch_of_the_best() -> None:
    """A small batch fills a pipeline badly, which says nothing against the layout."""
    small = strategy(tp=2, pp=4, gas=8)
    found = answer(
        [
            probed(1, small, seconds=11.0, purpose="baseline"),  # 1 s for each of 8 + 3 slots
            trial(2, strategy(tp=1, pp=8, gas=64), seconds=35.0),
        ]
    )
    assert found.best.metrics.global_batch_size == 128
    replicas = 2
    slots = 128 // replicas + 3
    assert found.speedup_over_baseline == pytest.approx(slots / 35.0)


def test_batches_that_cannot_be_made_equal_are_named() -> None:
    odd = strategy(tp=1, pp=4, mbs=3, gas=4)  # 4 replicas of 3 samples
    found = answer(
        [trial(1, odd, seconds=2.0, purpose="baseline"), trial(2, B, seconds=1.0)],
    )
    assert found.baseline is not None
    assert ", at a global batch of 64 samples against 48" in found.baseline.comparison


def test_a_campaign_without_a_baseline_says_nothing_of_one() -> None:
    found = answer([trial(1, A, seconds=1.0)])
    assert found.baseline is None
    assert found.speedup_over_baseline is None


HOURS_PER_DAY = 24.0


def against(seconds: float) -> list[Trial]:
    """A best of one second on two nodes, and a baseline; half a node-hour was spent on each."""
    return [trial(1, A, seconds=seconds, purpose="baseline"), trial(2, B, seconds=1.0)]


def test_a_saving_is_the_difference_of_two_trainings() -> None:
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


def test_nothing_is_saved_against_itself_or_without_figures() -> None:
    assert answer([trial(1, A, seconds=2.0, purpose="baseline")]).saving is None
    assert answer([trial(1, A, seconds=2.0)]).saving is None


def test_a_training_that_nobody_stated_is_marked_as_assumed() -> None:
    assert not answer(against(2.0), tokens=1e9).training.assumed
    assert answer(against(2.0), tokens=None).training.assumed
