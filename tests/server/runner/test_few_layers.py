"""A campaign for more nodes than there are, searched with few of the model's layers and simulated
from end to end."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from autotune.prediction.campaign import check_campaign
from autotune.recommendation.recommendation import recommend
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import TrialState
from autotune.schemas.recommendations import Recommendation
from autotune.schemas.trials import Trial
from evaluators.simulated import simulate
from evaluators.trial import TrialProtocol, TrialRequest
from search_spaces.strategy import Strategy
from server.campaign.results import Workload
from tests.server.running import Running

LAYERS = 24
LARGE: dict[str, Any] = {
    "model": "gpt-175b",
    "nodes": 64,
    "pool_nodes": 16,
    "screen_layers": LAYERS,
    "fresh": True,
    "space": {
        "tensor_parallel": [2, 4, 8],
        "pipeline_parallel": [4, 8, 16, 32],
        "micro_batch_size": [1, 2, 4],
        "zero_stage": 1,
        "num_nodes": 64,
        "activation_checkpointing": "full",
        "global_batch_size": 1024,
    },
    "budget": {"max_trials": 12},
    "protocol": {"confirmations": 1},
}


def done(running: Running, **changes: Any) -> tuple[Campaign, list[Trial], Recommendation]:
    campaign = running.done(**LARGE | changes)
    trials = running.trials(campaign)
    found = recommend(campaign, trials)
    assert found is not None
    return campaign, trials, found


def true_rate(campaign: Campaign, strategy: Strategy, directory: Path) -> float:
    """Samples a second of a strategy in full, on the campaign's simulated machine; 0 where it does
    not fit."""
    workload = Workload.of(campaign)
    own = (strategy.gradient_accumulation_steps,)
    request = TrialRequest(
        token="true",
        transformer=workload.transformer,
        machine=workload.machine,
        strategy=strategy,
        protocol=TrialProtocol(accumulations=own, time_limit_s=1e6),
        directory=directory,
        seed=campaign.request.seed,
    )
    outcome = simulate(request, started_at=datetime.now(UTC)).outcome
    if outcome.status is not TrialState.OK:
        return 0.0
    batch = strategy.global_batch_size(workload.machine.gpus_per_node)
    return batch / outcome.measurements[0].iteration_time_s


@pytest.mark.soak
def test_few_layers_find_a_strategy_for_more_nodes_than_present(
    running: Running, tmp_path: Path
) -> None:
    # Over ten machines it is 0.88 to 1 (docs/search.md): the highest of projections is too high.
    campaign, trials, found = done(running, seed=2)
    assert {(t.num_layers, t.strategy.num_nodes, t.stands_for_nodes) for t in trials} == {
        (LAYERS, 16, 64)
    }
    best = found.best
    assert (best.projected_from_layers, best.confirmed, found.provisional) == (LAYERS, False, True)
    assert best.strategy.num_nodes == 64
    text = " ".join(found.caveats)
    assert "projected from 24 of 96 layers on 16 nodes, not measured in full" in text
    assert campaign.reason.endswith("it takes 64 nodes, and all trials share 16")
    space = check_campaign(campaign.request)
    rates = [true_rate(campaign, strategy, tmp_path) for strategy in space.lattice()]
    own = true_rate(campaign, best.strategy, tmp_path)
    assert own > 0.95 * max(rates)
    assert best.metrics.tokens_per_s == pytest.approx(own * 2048, rel=0.1)


def test_the_best_is_confirmed_in_full_where_the_nodes_allow_it(running: Running) -> None:
    campaign, trials, found = done(running, pool_nodes=64, budget={"max_trials": 8})
    assert campaign.screening is not None
    assert "time than was projected" in campaign.screening.outcome
    assert sum(trial.num_layers == LAYERS for trial in trials) >= 4
    assert (found.best.confirmed, found.best.projected_from_layers) == (True, None)
    confirmation = next(trial for trial in trials if trial.purpose == "confirmation")
    assert (confirmation.num_layers, confirmation.strategy.num_nodes) == (None, 64)
