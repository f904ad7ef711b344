"""From trials in any order to the strategy to train with, and which are measured once more."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.measurement.objectives import GROWTH_DENSE
from autotune.recommendation.ranking import REPEATABILITY, contenders
from autotune.recommendation.recommendation import (
    layout_to_repeat,
    recommend,
    strategies_to_confirm,
)
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial
from autotune.search.trial import ATTEMPTS, UNINFORMATIVE
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
from tests.autotune.records import MACHINE, strategy

# --- which are measured once more ----------------------------------------------------------------


def test_the_fastest_layouts_of_the_search_are_confirmed_first() -> None:
    trials = [trial(i, s, seconds=t) for i, (s, t) in enumerate([(A, 4), (B, 1), (C, 3), (D, 2)])]
    assert strategies_to_confirm(campaign(), trials) == [B, D, C]
    assert strategies_to_confirm(campaign(confirmations=0), trials) == []


def test_nothing_succeeded_nothing_to_confirm() -> None:
    failed = [trial(1, A, state=TrialState.OOM), trial(2, B, state=TrialState.PENDING)]
    assert strategies_to_confirm(campaign(), failed) == []
    assert recommend(campaign(), failed) is None


@pytest.mark.parametrize("state", [TrialState.OK, TrialState.PENDING])
def test_a_confirmation_done_or_under_way_is_not_started_again(state: TrialState) -> None:
    trials = [
        trial(1, A, seconds=1),
        trial(2, B, seconds=2),
        trial(3, A, seconds=1, purpose="confirmation", state=state),
    ]
    assert strategies_to_confirm(campaign(confirmations=1), trials) == []
    assert strategies_to_confirm(campaign(confirmations=2), trials) == [B]


@pytest.mark.parametrize("state", [TrialState.OK, TrialState.PENDING])
def test_a_confirmation_counts_whichever_layout_leads_now(state: TrialState) -> None:
    """As when a later release ranks otherwise: so many are measured again as were asked for."""
    trials = [
        trial(1, A, seconds=1.0),
        trial(2, B, seconds=1.01),
        trial(3, B, seconds=1.01, purpose="confirmation", state=state),
    ]
    assert strategies_to_confirm(campaign(confirmations=1), trials) == []
    assert strategies_to_confirm(campaign(confirmations=2), trials) == [A]


def test_a_confirmation_withdrawn_from_a_queue_is_restarted() -> None:
    trials = [trial(1, A, seconds=1), trial(2, B, seconds=2)]
    again = trial(3, A, purpose="confirmation", state=TrialState.CANCELLED, node_hours=0.0)
    for count in (1, 4):
        assert strategies_to_confirm(campaign(confirmations=1), [*trials, *[again] * count]) == [A]


@pytest.mark.parametrize("state", sorted(UNINFORMATIVE))
def test_a_lost_confirmation_is_retried_before_the_next_layout(
    state: TrialState,
) -> None:
    trials = [trial(1, A, seconds=1), trial(2, B, seconds=2), trial(3, C, seconds=3)]
    lost = [
        trial(4 + i, A, purpose="confirmation", state=state, node_hours=0.1)
        for i in range(ATTEMPTS)
    ]
    subject = campaign(confirmations=1)
    assert strategies_to_confirm(subject, [*trials, *lost[:-1]]) == [A]
    assert strategies_to_confirm(subject, [*trials, *lost]) == [B]
    failed = trial(9, B, purpose="confirmation", state=TrialState.CRASHED)
    assert strategies_to_confirm(subject, [*trials, *lost, failed]) == []
    confirmed = trial(9, B, seconds=2, purpose="confirmation")
    assert strategies_to_confirm(subject, [*trials, *lost, confirmed]) == []


def test_the_next_in_line_takes_the_place_of_one_that_failed() -> None:
    trials = [trial(i, s, seconds=i) for i, s in enumerate([A, B, C], start=1)]
    failed = trial(4, A, purpose="confirmation", state=TrialState.OOM)
    assert strategies_to_confirm(campaign(confirmations=1), [*trials, failed]) == [B]
    second = trial(5, B, purpose="confirmation", state=TrialState.CRASHED)
    assert strategies_to_confirm(campaign(confirmations=1), [*trials, failed, second]) == []


def test_a_layout_clearly_above_the_confirmed_is_confirmed_too() -> None:
    trials = [
        trial(1, A, seconds=1.0),
        trial(2, B, seconds=1.2),
        trial(3, A, seconds=9.0, purpose="confirmation"),  # the search's figure was too good
    ]
    assert strategies_to_confirm(campaign(confirmations=1), trials) == [B]
    within_noise = [*trials[:2], trial(3, A, seconds=1.205, purpose="confirmation")]
    assert strategies_to_confirm(campaign(confirmations=1), within_noise) == []


def test_the_best_layout_is_confirmed_twice() -> None:
    trials = [trial(1, A, seconds=1.0), trial(2, A, seconds=1.0, purpose="confirmation")]
    lost = trial(3, A, purpose="confirmation", state=TrialState.NODE_FAIL)
    again = trial(4, A, seconds=1.01, purpose="confirmation")
    assert layout_to_repeat(campaign(), trials[:1]) is None
    assert layout_to_repeat(campaign(), trials) == A
    assert layout_to_repeat(campaign(), [*trials, lost]) == A
    assert layout_to_repeat(campaign(), [*trials, lost, again]) is None
    assert layout_to_repeat(campaign(simulated=True), trials) is None
    assert layout_to_repeat(campaign(confirmations=0), trials) is None


def test_repeated_starts_replace_the_assumed_noise() -> None:
    trials = [
        trial(1, A, seconds=1.0, purpose="confirmation"),
        trial(2, A, seconds=1.0, purpose="confirmation"),
        trial(3, B, seconds=1.015, purpose="confirmation"),
    ]
    assert max(each.uncertainty for each in contenders(campaign(), trials)) < REPEATABILITY
    assert {each.uncertainty for each in contenders(campaign(), trials[1:])} == {REPEATABILITY}


def test_twins_are_confirmed_once_by_the_better() -> None:
    twin = A.with_accumulation(32)
    trials = [trial(1, A, seconds=1.0), trial(2, twin, seconds=1.9)]
    assert strategies_to_confirm(campaign(), trials) == [twin]  # twice the batch in 1.9 times


# --- the ranking ---------------------------------------------------------------------------------


def test_the_published_mistake_is_not_repeated() -> None:
    """A tuner named 23.6 s best where 15.05 s was measured: it sorted by a column's position.

    Here the numbers of the trials, their database ids and the order of the rows all disagree.
    """
    times = [23.6, 40.0, 15.05, 18.2, 31.0]
    layouts = [A, B, C, D, strategy(tp=2, pp=8)]
    trials = [
        trial(number, s, seconds=t)
        for number, s, t in zip([9, 2, 7, 30, 1], layouts, times, strict=True)
    ]
    recommendation = answer(trials)
    assert recommendation.best.trial_numbers == [7]
    assert recommendation.best.metrics.iteration_time_s == pytest.approx(15.05)
    order = [recommendation.best, *recommendation.runners_up]
    assert [one.trial_numbers for one in order] == [[7], [30], [9], [1], [2]]
    assert [one.rank for one in order] == [1, 2, 3, 4, 5]


@settings(max_examples=25, deadline=None)
@given(shuffle=st.randoms(), times=st.lists(st.sampled_from([1.0, 1.5, 2.0]), min_size=6))
def test_the_order_of_the_trials_does_not_matter(
    shuffle: random.Random, times: list[float]
) -> None:
    layouts = [strategy(tp=tp, pp=pp, nodes=4) for tp in (1, 2, 4) for pp in (1, 2, 4, 8)]
    trials = [trial(i, s, seconds=t) for i, (s, t) in enumerate(zip(layouts, times, strict=False))]
    trials.append(trial(50, layouts[0], seconds=1.7, purpose="confirmation"))
    trials.append(trial(51, layouts[1], purpose="confirmation", state=TrialState.OOM))
    expected = answer(trials)
    shuffle.shuffle(trials)
    assert answer(trials) == expected


def test_four_distinct_layouts_follow_the_best() -> None:
    layouts = [strategy(tp=tp, pp=pp) for tp in (1, 2, 4) for pp in (1, 2, 4)]
    trials = [trial(i, s, seconds=1 + i) for i, s in enumerate(layouts)]
    trials += [trial(20 + i, s.with_accumulation(128), seconds=9) for i, s in enumerate(layouts)]
    recommendation = answer(trials)
    assert len(recommendation.runners_up) == 4
    shapes = [one.strategy for one in (recommendation.best, *recommendation.runners_up)]
    assert len({(s.tensor_parallel, s.pipeline_parallel) for s in shapes}) == 5


def test_a_confirmed_figure_outranks_a_better_unconfirmed_one() -> None:
    trials = [
        trial(1, A, seconds=1.0),
        trial(2, B, seconds=1.2),
        trial(3, B, seconds=1.2, purpose="confirmation"),
    ]
    recommendation = answer(trials)
    assert recommendation.best.trial_numbers == [2, 3]
    assert recommendation.best.confirmed
    assert not recommendation.runners_up[0].confirmed
    assert recommendation.runners_up[0].relative_to_best == pytest.approx(1.2)
    assert any("unconfirmed layout 20.0% faster" in sentence for sentence in recommendation.caveats)


def test_the_median_of_all_measurements_of_a_strategy_counts() -> None:
    trials = [
        trial(1, A, seconds=1.0),
        trial(2, A, seconds=1.4, purpose="confirmation"),
        trial(3, A, seconds=1.1, purpose="confirmation"),
    ]
    best = answer(trials).best
    assert best.metrics.iteration_time_s == pytest.approx(1.1)
    assert best.metrics.iteration_time_spread_s == pytest.approx(0.2)
    assert best.metrics.tokens_per_s == pytest.approx(best.metrics.global_batch_size * 2048 / 1.1)
    assert best.metrics.mfu == pytest.approx(best.metrics.model_tflops_per_gpu / 191.5)


def test_a_measured_figure_replaces_the_laws() -> None:
    trials = [
        trial(1, A, seconds=1.0, probes=(4, 8)),
        trial(2, A, seconds=1.3, purpose="confirmation"),
    ]
    best = answer(trials).best
    assert best.metrics.measured
    assert best.metrics.iteration_time_s == pytest.approx(1.3)


def test_what_failed_when_measured_once_more_ranks_last() -> None:
    trials = [
        trial(1, A, seconds=1.0),
        trial(2, B, seconds=2.0),
        trial(3, A, purpose="confirmation", state=TrialState.OOM),
    ]
    recommendation = answer(trials)
    assert recommendation.best.trial_numbers == [2]
    text = "The layout of trial 1 failed when measured again, and ranks last."
    assert text in recommendation.caveats
    both = answer(
        [
            *trials,
            trial(4, C, seconds=3.0),
            trial(5, B, purpose="confirmation", state=TrialState.OOM),
        ]
    )
    assert both.best.trial_numbers == [4]
    text = "The layouts of trials 1, 2 failed when measured again, and rank last."
    assert text in both.caveats
    alone = answer([trials[0], trials[2]])
    assert alone.best.trial_numbers == [1]
    assert "failed when it was measured again" in " ".join(alone.caveats)


def test_a_lost_node_is_not_held_against_a_strategy() -> None:
    trials = [
        trial(1, A, seconds=1.0),
        trial(2, B, seconds=2.0),
        trial(3, A, purpose="confirmation", state=TrialState.NODE_FAIL),
    ]
    assert answer(trials).best.trial_numbers == [1]


def test_the_objective_decides_between_many_and_few_nodes() -> None:
    wide, narrow = strategy(nodes=4), strategy(nodes=1)
    trials = [trial(1, wide, seconds=1.0), trial(2, narrow, seconds=2.0)]
    assert answer(trials).best.trial_numbers == [1]
    for objective in ("tokens_per_s_per_gpu", "tokens_per_node_hour", "tokens_per_joule"):
        assert answer(trials, objective=objective).best.trial_numbers == [2]


def test_a_layout_without_memory_headroom_ranks_last() -> None:
    """Also where it was confirmed; a caveat says so; and it is not measured once more."""
    tight, loose, slow = (
        trial(1, A, seconds=1.0, peak=MACHINE.memory_gib - 3),
        trial(2, B, seconds=2.0, peak=MACHINE.memory_gib - 5),
        trial(3, C, seconds=3.0, peak=None),
    )
    again = trial(4, A, seconds=1.0, peak=MACHINE.memory_gib - 3, purpose="confirmation")
    trials = [tight, loose, slow, again]
    assert answer(trials, min_headroom_gib=0.0).best.trial_numbers == [1, 4]
    bounded = answer(trials, min_headroom_gib=4.0)
    assert bounded.best.trial_numbers == [2]
    assert [r.keeps_headroom for r in bounded.runners_up] == [True, False]
    assert "1 measured layout leaves less than 4 GiB" in " ".join(bounded.caveats)
    confirmed = strategies_to_confirm(campaign(min_headroom_gib=4.0), [tight, loose, slow])
    assert confirmed == [B, C]
    none = answer([tight], min_headroom_gib=4.0)
    assert not none.best.keeps_headroom
    assert "No measured layout leaves 4 GiB; the best leaves 3 GiB." in none.caveats


def test_energy_that_was_sampled_stands_over_what_is_predicted() -> None:
    """The slower of two draws half of what its like draws; of several samples the median counts."""

    def sampled(number: int, factor: float) -> Trial:
        found = trial(number, B, seconds=1.2)
        assert found.metrics is not None
        rate = (found.metrics.tokens_per_joule or 0.0) * factor
        return measured_otherwise(found, tokens_per_joule=rate, energy_sampled=True)

    trials = [
        trial(1, A, seconds=1.0),
        *(sampled(number, factor) for number, factor in ((2, 1.9), (3, 2.0), (4, 9.0))),
    ]
    assert answer(trials).best.trial_numbers == [1]
    best = answer(trials, objective="tokens_per_joule").best
    assert best.trial_numbers == [2, 3, 4]
    assert best.metrics.energy_sampled
    expected = sampled(3, 2.0).metrics
    assert expected is not None
    assert best.metrics.tokens_per_joule == expected.tokens_per_joule


@pytest.mark.parametrize(
    ("seconds", "spread", "significant"),
    [(1.01, 0.0, False), (1.03, 0.0, True), (1.045, 0.05, False), (1.3, 0.05, True)],
)
def test_a_difference_counts_beyond_both_spreads(
    seconds: float, spread: float, significant: bool
) -> None:
    recommendation = answer([trial(1, A, seconds=1.0, spread=spread), trial(2, B, seconds=seconds)])
    runner_up = recommendation.runners_up[0]
    assert runner_up.significant is significant
    assert recommendation.best.significant is None
    assert (
        any("level with the best" in sentence for sentence in recommendation.caveats)
        is not significant
    )


def test_by_default_the_fastest_layout_that_keeps_room_is_best() -> None:
    full, roomy = MACHINE.memory_gib - 1.5, MACHINE.memory_gib * 0.9
    trials = [
        trial(1, A, seconds=1.0, peak=full),
        trial(2, B, seconds=1.1, peak=roomy),
        trial(3, A, seconds=1.0, peak=full, purpose="confirmation"),
    ]
    found = answer(trials)
    assert found.best.trial_numbers == [2]
    assert found.fuller is not None
    assert found.fuller.strategy == A
    assert found.fuller.memory_headroom_gib == pytest.approx(1.5)
    assert found.fuller.relative_to_best == pytest.approx(1.1)
    assert answer(trials, min_headroom_gib=0.0).best.trial_numbers == [1, 3]
    alone = answer(trials[:1])
    assert (alone.best.strategy, alone.fuller) == (A, None)
    assert "a training may need; the best leaves 1.5 GiB" in " ".join(alone.caveats)


def test_of_layouts_level_with_each_other_the_safer_is_best() -> None:
    risky = 0.96 * MACHINE.memory_gib / (1 + 2.5 * GROWTH_DENSE)
    fast = trial(1, A, seconds=1.0, peak=0.97 * risky)
    assert answer([fast, trial(2, B, seconds=1.005, peak=20.0)]).best.strategy == A
    full = trial(1, A, seconds=1.0, peak=0.995 * risky)
    assert answer([full, trial(2, B, seconds=1.005, peak=20.0)]).best.strategy == B
    assert answer([full, trial(2, B, seconds=1.03, peak=20.0)]).best.strategy == A
