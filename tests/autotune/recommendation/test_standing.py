"""How a layout stands in its space."""

from __future__ import annotations

from functools import cache

from autotune.recommendation.standing import standing
from autotune.schemas.recommendations import Neighbour, SpaceStanding
from autotune.search import Proposer, SearchTrial
from autotune.words.dimensions import percent
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy
from tests.autotune.search.scene import layouts_of, ok, oom, small_space


@cache
def space() -> SearchSpace:
    return small_space(tensor_parallel=[1, 2, 4, 8], micro_batch_size=[1, 2, 4, 8])


def layout(tensor_parallel: int, micro_batch_size: int) -> Strategy:
    return next(
        strategy
        for strategy in layouts_of(space()).lattice
        if (strategy.tensor_parallel, strategy.micro_batch_size)
        == (tensor_parallel, micro_batch_size)
    )


def standing_of(trials: list[SearchTrial], best: Strategy) -> SpaceStanding:
    found = standing(best, trials, Proposer(space(), objective="tokens_per_s", seed=1))
    assert found is not None
    return found


def at(found: SpaceStanding, step: str) -> Neighbour:
    return next(each for each in found.neighbours if each.step == step)


def test_neighbours_are_next_values_measured_or_predicted() -> None:
    best = layout(2, 4)
    trials = [ok(space(), best), ok(space(), layout(4, 4), factor=0.5), oom(layout(2, 8))]
    found = standing_of(trials, best)
    steps = [each.step for each in found.neighbours]
    assert steps == ["TP 1", "TP 4", "MBS 2", "MBS 8"]
    predicted, too_big = at(found, "TP 1"), at(found, "MBS 8")
    assert (predicted.state, too_big.state) == (None, "oom")
    assert too_big.relative_to_best is None
    assert too_big.fit_probability == 0.0
    low, middle, high = predicted.relative_low, predicted.relative_to_best, predicted.relative_high
    assert low is not None
    assert middle is not None
    assert high is not None
    assert low < middle < high
    slow = at(found, "TP 4")
    assert slow.state == "ok"
    assert slow.relative_to_best is not None
    assert slow.relative_to_best < 0.6
    assert (
        standing(best, list(reversed(trials)), Proposer(space(), objective="tokens_per_s", seed=1))
        == found
    )


def test_the_more_is_known_the_less_is_left_to_gain() -> None:
    every = list(layouts_of(space()).lattice)
    best = max(every, key=lambda s: layouts_of(space()).log_rate[every.index(s)])
    few, all_of_them = (
        standing_of([ok(space(), best)], best),
        standing_of([ok(space(), s) for s in every], best),
    )
    assert all_of_them.untried == 0
    assert all_of_them.expected_gain < few.expected_gain
    assert few.sentence.startswith("Probably the best of its space (")
    assert few.sentence.endswith(f"More trials may gain about {percent(few.expected_gain)}.")


def test_a_slow_layout_is_probably_not_the_best() -> None:
    every = list(layouts_of(space()).lattice)
    slow = min(every, key=lambda s: layouts_of(space()).log_rate[every.index(s)])
    found = standing_of([ok(space(), slow)], slow)
    assert found.sentence.startswith("Probably not yet the best of its space (")


def test_a_layout_outside_the_space_has_no_standing_in_it() -> None:
    stranger = layout(2, 4).with_accumulation(16)
    stranger = type(stranger)(**stranger.as_dict() | {"zero_stage": 2})
    subject = Proposer(space(), objective="tokens_per_s", seed=1)
    assert standing(stranger, [ok(space(), stranger), ok(space(), layout(1, 1))], subject) is None


def test_a_neighbour_that_leaves_too_little_memory_does_not_fit() -> None:
    best, next_to_it = layout(2, 4), layout(2, 2)
    trials = [ok(space(), best), ok(space(), next_to_it)]
    peak = trials[1].peak_memory_gib
    assert peak is not None
    headroom = space().machine.memory_gib - peak + 1.0
    fits: list[float] = []
    for wanted in (0.0, headroom):
        subject = Proposer(space(), objective="tokens_per_s", seed=1, headroom_gib=wanted)
        neighbours = subject.neighbours(trials, best)
        fits += [each.fit_probability for each in neighbours if each.strategy == next_to_it]
    assert fits == [1.0, 0.0]
