"""What a scaling study measures next, and when it ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from autotune.resolution import strategy_shape
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import TrialState
from autotune.schemas.requests import Budget
from autotune.schemas.spaces import StudySpec
from autotune.schemas.trials import Trial
from server.campaign.scheduling import next_of_study
from tests.autotune.recommendation import examples

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STRATEGIES = [replace(examples.A, num_nodes=nodes) for nodes in (2, 4, 8)]


def study(**budget: Any) -> Campaign:
    found = examples.campaign()
    spec = StudySpec(strategies=[strategy_shape(STRATEGIES[0])], nodes=[2, 4, 8])
    changes = {"study": spec, "nodes": 8, "pool_nodes": 8, "budget": Budget(**budget)}
    return found.model_copy(update={"request": found.request.model_copy(update=changes)})


def ended(number: int, nodes: int, **changes: Any) -> Trial:
    trial = examples.trial(number, replace(examples.A, num_nodes=nodes), seconds=10.0)
    return trial.model_copy(update={"purpose": "study", **changes})


def test_the_fewest_nodes_come_first_and_the_next_waits_for_its_nodes() -> None:
    first = next_of_study(study(), [], STRATEGIES, now=NOW)
    assert (first.strategies, first.purpose) == ((STRATEGIES[0],), "study")
    running = ended(1, 2, state=TrialState.PENDING, metrics=None)
    assert next_of_study(study(), [running], STRATEGIES, now=NOW).strategies == (STRATEGIES[1],)
    two = [running, ended(2, 4, state=TrialState.PENDING, metrics=None)]
    waits = next_of_study(study(), two, STRATEGIES, now=NOW)
    assert (waits.strategies, waits.phase_ends) == ((), None)
    done = [ended(1, 2), ended(2, 4, state=TrialState.OOM, metrics=None), ended(3, 8)]
    assert next_of_study(study(), done, STRATEGIES, now=NOW).phase_ends == (
        "All trials of the study have run."
    )


def test_what_says_nothing_is_measured_again_and_does_not_count() -> None:
    lost = [ended(number, 2, state=TrialState.NODE_FAIL, metrics=None) for number in range(1, 4)]
    for known in (lost[:1], lost[:2]):
        following = next_of_study(study(max_trials=3), known, STRATEGIES, now=NOW)
        assert following.strategies == (STRATEGIES[0],)
    following = next_of_study(study(max_trials=3), lost, STRATEGIES, now=NOW)
    assert following.strategies == (STRATEGIES[1],), "three times at most"


def test_the_budget_ends_it_and_what_is_left_is_said() -> None:
    spent = next_of_study(study(max_trials=1), [ended(1, 2)], STRATEGIES, now=NOW)
    assert spent.phase_ends == (
        "The budget of 1 trial is spent. 2 of 3 trials of the study were not started."
    )
    known = [ended(1, 2, duration_s=3600.0, node_hours=2.0)]
    short = next_of_study(study(max_node_hours=5.5), known, STRATEGIES, now=NOW)
    assert "too small for a trial on 4 nodes" in (short.phase_ends or "")
    enough = next_of_study(study(max_node_hours=6.0), known, STRATEGIES, now=NOW)
    assert enough.strategies == (STRATEGIES[1],)
