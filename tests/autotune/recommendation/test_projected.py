"""What was measured on few nodes is told apart from what was measured on all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.recommendation import recommend, strategies_to_confirm
from autotune.schemas import Recommendation, Trial, TrialState
from search_spaces.strategy import Strategy
from tests.autotune.recommendation.examples import campaign, strategy, trial

FULL, OTHER = strategy(tp=2, nodes=16), strategy(tp=4, nodes=16)


def narrow(number: int, full: Strategy, *, seconds: float) -> Trial:
    ran = trial(number, replace(full, num_nodes=4), seconds=seconds)
    return ran.model_copy(update={"stands_for_nodes": full.num_nodes})


def told(trials: list[Trial]) -> Recommendation:
    found = recommend(campaign(), trials)
    assert found is not None
    return found


def test_a_projection_says_from_how_many_nodes_it_is_and_is_provisional() -> None:
    found = told([narrow(1, FULL, seconds=2.0)])
    best = found.best
    assert found.provisional
    assert (best.projected_from_nodes, best.confirmed) == (4, False)
    assert best.strategy.num_nodes == 16
    assert best.metrics.global_batch_size == FULL.global_batch_size(8)
    assert best.metrics.iteration_time_s == pytest.approx(2.0, rel=0.2)
    assert best.metrics.iteration_time_spread_s > 0.02
    assert "projected from 4 nodes and has not been measured on 16 yet" in " ".join(found.caveats)


def test_the_energy_of_a_projection_is_what_the_gpus_drew_on_few_nodes() -> None:
    plain = narrow(1, FULL, seconds=2.0)
    assert plain.metrics is not None
    assert plain.metrics.tokens_per_joule is not None
    halved = {"tokens_per_joule": plain.metrics.tokens_per_joule / 2}
    hungry = plain.model_copy(update={"metrics": plain.metrics.model_copy(update=halved)})
    found = [told([each]).best.metrics.tokens_per_joule for each in (plain, hungry)]
    assert (found[0] or 0.0) / (found[1] or 1.0) == pytest.approx(2.0, rel=0.05)


def test_what_was_measured_on_all_nodes_ranks_first_and_the_projected_best_is_confirmed() -> None:
    trials = [trial(1, OTHER, seconds=4.0), narrow(2, FULL, seconds=2.0)]
    found = told(trials)
    assert [each.projected_from_nodes for each in (found.best, *found.runners_up)] == [None, 4]
    assert found.runners_up[0].relative_to_best > 1.5
    assert "what was measured on all of them ranks first" in " ".join(found.caveats)
    assert strategies_to_confirm(campaign(), trials) == [FULL, OTHER]
    again = trial(3, FULL, seconds=2.1, purpose="confirmation")
    confirmed = told([*trials, again])
    assert (confirmed.best.projected_from_nodes, confirmed.best.confirmed) == (None, True)
    assert confirmed.best.metrics.iteration_time_s == pytest.approx(2.1)


def test_nothing_is_projected_of_what_failed_in_full_or_where_that_is_contradicted() -> None:
    failed = trial(2, FULL, state=TrialState.OOM)
    assert recommend(campaign(), [narrow(1, FULL, seconds=2.0), failed]) is None
    both = [trial(1, OTHER, seconds=4.0), narrow(2, OTHER, seconds=2.0), narrow(3, FULL, seconds=2)]
    assert [each.projected_from_nodes for each in told(both).runners_up] == []
