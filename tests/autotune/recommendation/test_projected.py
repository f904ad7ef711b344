"""Figures measured on few nodes are not mixed with those measured on all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.calibration import Observation
from autotune.recommendation.recommendation import recommend, strategies_to_confirm
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import TrialState
from autotune.schemas.recommendations import Recommendation
from autotune.schemas.trials import Trial
from autotune.search import belief_without_start
from search_spaces.strategy import Strategy
from tests.autotune.recommendation.examples import campaign, half_per_joule, trial
from tests.autotune.records import strategy

LAYERS = 12
FULL, OTHER = strategy(tp=2, nodes=16), strategy(tp=4, nodes=16)


def narrow(number: int, full: Strategy, *, seconds: float) -> Trial:
    ran = trial(number, replace(full, num_nodes=4), seconds=seconds)
    return ran.model_copy(update={"stands_for_nodes": full.num_nodes})


def recommended(trials: list[Trial]) -> Recommendation:
    found = recommend(campaign(), trials)
    assert found is not None
    return found


def test_a_projection_names_its_nodes_and_is_provisional() -> None:
    found = recommended([narrow(1, FULL, seconds=2.0)])
    best = found.best
    assert found.provisional
    assert (best.projected_from_nodes, best.confirmed) == (4, False)
    assert best.strategy.num_nodes == 16
    assert best.metrics.global_batch_size == FULL.global_batch_size(8)
    assert best.metrics.iteration_time_s == pytest.approx(2.0, rel=0.3)
    assert best.metrics.iteration_time_spread_s > 0.02
    assert "projected from 4 nodes and has not been measured on 16 yet" in " ".join(found.caveats)


def test_a_projections_energy_is_what_gpus_drew_on_few_nodes() -> None:
    plain = narrow(1, FULL, seconds=2.0)
    both = (plain, half_per_joule(plain))
    found = [recommended([each]).best.metrics.tokens_per_joule for each in both]
    assert (found[0] or 0.0) / (found[1] or 1.0) == pytest.approx(2.0, rel=0.05)


def test_full_trials_rank_first_and_projected_best_is_confirmed() -> None:
    trials = [trial(1, OTHER, seconds=3.5), narrow(2, FULL, seconds=2.0)]
    found = recommended(trials)
    assert [each.projected_from_nodes for each in (found.best, *found.runners_up)] == [None, 4]
    assert found.runners_up[0].relative_to_best > 1.2
    assert "layouts measured on all nodes rank first" in " ".join(found.caveats)
    assert strategies_to_confirm(campaign(), trials) == [FULL, OTHER]
    again = trial(3, FULL, seconds=2.1, purpose="confirmation")
    confirmed = recommended([*trials, again])
    assert (confirmed.best.projected_from_nodes, confirmed.best.confirmed) == (None, True)
    assert confirmed.best.metrics.iteration_time_s == pytest.approx(2.1)


def test_no_projection_after_a_full_failure_or_a_contradiction() -> None:
    failed = trial(2, FULL, state=TrialState.OOM)
    assert recommend(campaign(), [narrow(1, FULL, seconds=2.0), failed]) is None
    both = [trial(1, OTHER, seconds=4.5), narrow(2, OTHER, seconds=2.0), narrow(3, FULL, seconds=2)]
    assert [each.projected_from_nodes for each in recommended(both).runners_up] == []


def short(number: int, full: Strategy, *, seconds: float, peak: float = 30.0) -> Trial:
    """With a quarter of the 48 layers, in a pipeline and on nodes a quarter as long and many."""
    quarter = replace(
        full, pipeline_parallel=full.pipeline_parallel // 4, num_nodes=full.num_nodes // 4
    )
    ran = trial(number, quarter, seconds=seconds, peak=peak)
    marked = {"stands_for_nodes": full.num_nodes, "num_layers": LAYERS}
    return ran.model_copy(update=marked | {"peak_memory_gib_by_rank": [peak]})


DEEP = strategy(tp=2, pp=8, nodes=16)


def on_16(*, at_hand: int) -> Campaign:
    """A campaign for 16 nodes of which trials may hold so many."""
    request = campaign().request.model_copy(update={"nodes": 16, "pool_nodes": at_hand})
    return campaign().model_copy(update={"request": request})


def test_a_projection_from_few_layers_is_of_the_whole_model() -> None:
    found = recommended([short(1, DEEP, seconds=2.0)])
    best = found.best
    assert found.provisional
    assert (best.projected_from_layers, best.projected_from_nodes) == (LAYERS, 4)
    assert best.strategy == DEEP
    slots = (8 + 8 - 1) / (8 + 2 - 1)
    assert 0.85 < best.metrics.iteration_time_s / (2.0 * slots) < 1.5
    assert "projected from 12 of 48 layers on 4 nodes, not measured in full" in found.caveats[0]
    # Without checkpointing each of 8 stages holds up to 8 micro-batches' activations, of 2 up to 2.
    large = replace(DEEP, activation_checkpointing="none", micro_batch_size=6)
    hungry = recommended([short(1, large, seconds=2.0, peak=39)])
    assert "probably does not fit" in " ".join(hungry.caveats)
    assert "probably does not fit" not in " ".join(found.caveats)


def test_a_trial_with_few_layers_is_not_of_its_lookalike_layout() -> None:
    like_it = replace(DEEP, pipeline_parallel=2, num_nodes=4)
    trials = [trial(1, like_it, seconds=4.0), short(2, DEEP, seconds=2.0)]
    found = recommend(campaign(), trials)
    assert found is not None
    assert found.best.strategy == like_it
    assert found.best.metrics.iteration_time_s == pytest.approx(4.0)
    assert {each.iteration_time_s for each in found.accumulations} == {4.0}


def test_what_the_nodes_at_hand_are_too_few_for_may_come_first() -> None:
    slow, fast = (
        [trial(1, strategy(tp=4, nodes=4), seconds=20.0), short(2, DEEP, seconds=seconds)]
        for seconds in (40.0, 2.0)
    )
    for trials, at_hand, first in ((slow, 4, None), (fast, 4, LAYERS), (fast, 16, None)):
        found = recommend(on_16(at_hand=at_hand), trials)
        assert found is not None
        assert found.best.projected_from_layers == first


def test_a_projection_uses_the_campaigns_belief_and_past_trials() -> None:
    """They saw four times the nodes take twice the time, which nobody would have foreseen."""
    trials, subject = [narrow(1, FULL, seconds=2.0)], campaign()
    alone = belief_without_start(subject)
    earlier = tuple(
        Observation(
            transformer=alone.transformer,
            strategy=replace(each, num_nodes=nodes),
            iteration_time_s=seconds,
            fitted=True,
        )
        for each in (OTHER, strategy(tp=8, nodes=16), strategy(tp=1, nodes=16))
        for nodes, seconds in ((4, 2.0), (16, 4.0))
    )
    belief = replace(alone, earlier=earlier)
    believed, without = (recommend(subject, trials, belief=each) for each in (belief, None))
    assert believed is not None
    assert without is not None
    seconds = [each.best.metrics.iteration_time_s for each in (believed, without)]
    assert seconds[0] > 1.3 * seconds[1]
