from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from autotune.schemas.choices import TrialState
from autotune.schemas.requests import Budget
from autotune.schemas.trials import Trial
from autotune.search import Proposer, search_trials
from search_spaces.space import SearchSpace
from server.campaign.scheduling import (
    NextTrials,
    is_late,
    next_confirmations,
    next_search,
    reason_to_end_search,
    same_failure,
    wants_baseline,
    without_early_refusals,
)
from server.store import Store
from tests.autotune.recommendation import examples
from tests.autotune.records import MACHINE, MODEL
from tests.server.asking import created, with_trials

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def ended(trials: list[Trial], state: TrialState, **changes: object) -> list[Trial]:
    return [trial.model_copy(update={"state": state, **changes}) for trial in trials]


def test_a_refusal_reaches_the_search_but_not_a_lost_trial(
    store: Store,
) -> None:
    trials = with_trials(store, created(store), 5)
    states = (
        TrialState.PREEMPTED,
        TrialState.NODE_FAIL,
        TrialState.LOST,
        TrialState.CANCELLED,
        TrialState.REFUSED,
    )
    found = [ended([t], state)[0] for t, state in zip(trials, states, strict=True)]
    assert [o.state for o in search_trials(found)] == ["refused"]


@pytest.mark.parametrize("node_hours", [0.0, 0.5], ids=["in the queue", "while it ran"])
def test_a_trial_that_was_cancelled_is_not_of_the_budget(store: Store, node_hours: float) -> None:
    campaign = created(store, budget={"max_trials": 2})
    trials = with_trials(store, campaign, 2)
    assert reason_to_end_search(campaign, trials, now=NOW) is not None
    cancelled = ended(trials[:1], TrialState.CANCELLED, node_hours=node_hours)
    assert reason_to_end_search(campaign, [*cancelled, trials[1]], now=NOW) is None


@pytest.mark.parametrize(
    ("states", "wanted"),
    [
        ([], True),
        ([TrialState.PENDING], False),
        ([TrialState.OOM], False),
        ([TrialState.NODE_FAIL], True),
        ([TrialState.NODE_FAIL] * 3, False),
        ([TrialState.NODE_FAIL, TrialState.OK], False),
    ],
)
def test_a_baseline_that_lost_its_nodes_is_retried_a_few_times(
    store: Store, states: list[TrialState], wanted: bool
) -> None:
    trials = [
        trial.model_copy(update={"purpose": "baseline", "state": state, "node_hours": 0.1})
        for trial, state in zip(
            with_trials(store, created(store), len(states)), states, strict=True
        )
    ]
    assert wants_baseline(trials) == wanted


def test_a_campaign_that_began_without_a_baseline_gets_none(store: Store) -> None:
    assert not wants_baseline(with_trials(store, created(store), 1))


def test_waiting_costs_nothing_and_adds_nothing_to_the_forecast(store: Store) -> None:
    """Two trials held two nodes for an hour each; they waited for a day."""
    campaign = created(store, budget={"max_trials": 50, "max_node_hours": 10.5})
    done, waiting = with_trials(store, campaign, 4)[:2], with_trials(store, campaign, 1)
    cost = {"duration_s": 3600.0, "node_hours": 2.0}
    times = {"created_at": NOW - timedelta(days=1), "finished_at": NOW}
    trials = ended(done, TrialState.OOM, **cost, **times)
    reserve = 4.0  # of the confirmation, on all four nodes
    assert reason_to_end_search(campaign, [*trials, *waiting], now=NOW) is None
    spent = sum(trial.node_hours or 0.0 for trial in trials)
    assert spent + 2.0 + reserve < 10.5 < spent + 2 * 2.0 + reserve
    assert reason_to_end_search(campaign, [*trials, *waiting, *waiting], now=NOW) is not None


@pytest.mark.parametrize(
    ("seconds", "budget", "again"),
    [
        ((10.0, 10.1, 16.0), {}, 2),
        ((10.0, 13.0, 16.0), {}, 1),
        ((10.0, 13.0, 16.0), {"stop_early": False}, 2),
        ((10.0, 10.1, 16.0), {"train_tokens": 1e6}, 1),
        ((10.0, 10.1, 16.0), {"train_tokens": 1e12}, 2),
    ],
)
def test_runners_up_are_measured_again_that_are_worth_it(
    seconds: tuple[float, ...], budget: dict[str, object], again: int
) -> None:
    found = examples.campaign(confirmations=3)
    request = found.request.model_copy(update={"budget": Budget.model_validate(budget)})
    found = found.model_copy(update={"request": request})
    subjects = [examples.A, examples.B, examples.C]
    measured = [
        examples.trial(number, subject, seconds=each)
        for number, (subject, each) in enumerate(zip(subjects, seconds, strict=True), start=1)
    ]
    space = SearchSpace.build(MODEL, MACHINE, nodes=2, choices={})
    proposer = Proposer(space, objective="tokens_per_s", seed=1)
    following = next_confirmations(found, measured, proposer, now=NOW)
    assert list(following.strategies) == subjects[:again]  # the four nodes have room for two
    assert following.purpose == "confirmation"


def test_a_deadline_passes(store: Store) -> None:
    campaign = created(store, budget={"deadline": NOW.isoformat()})
    assert is_late(campaign, now=NOW)
    assert not is_late(campaign, now=NOW - timedelta(seconds=1))
    assert not is_late(created(store), now=NOW)


CRASHED, REFUSED, OK = TrialState.CRASHED, TrialState.REFUSED, TrialState.OK
CANCELLED = TrialState.CANCELLED


def trial(number: int, state: TrialState, error: str | None = None) -> Trial:
    at = None if state is TrialState.PENDING else NOW + timedelta(seconds=number)
    changes = {"state": state, "error": error, "finished_at": at, "token": f"t{number}"}
    return examples.trial(number, examples.A, seconds=1.0).model_copy(update=changes)


def trials(state: TrialState, count: int, *, after: int = 0, error: str = "same") -> list[Trial]:
    return [trial(number, state, error) for number in range(after + 1, after + count + 1)]


def shared_failure(found: list[Trial], *, fresh: int = 1) -> str | None:
    """With the last `fresh` of them new."""
    return same_failure(found, fresh={t.number for t in found[-fresh:]})


@pytest.mark.parametrize(
    ("state", "times"), [(CRASHED, 3), (REFUSED, 3), (TrialState.TIMEOUT, 5), (TrialState.LOST, 5)]
)
def test_the_first_trials_all_failed_alike(state: TrialState, times: int) -> None:
    assert shared_failure(trials(state, times - 1)) is None
    reason = shared_failure(trials(state, times)) or ""
    assert reason.startswith(f"all {times} trials ")
    assert reason.endswith(": same")
    assert shared_failure(trials(state, times + 1)) is None
    assert shared_failure(trials(state, 2 * times)) is not None


def test_several_that_end_at_once_do_not_jump_over_the_count() -> None:
    assert "all 5 trials" in (shared_failure(trials(CRASHED, 5), fresh=3) or "")
    assert shared_failure(trials(CRASHED, 5), fresh=2) is None


def test_numbers_do_not_make_two_errors() -> None:
    found = [trial(n, CRASHED, f"ImportError in line {n}") for n in (1, 2, 3)]
    assert (
        shared_failure(found) == "all 3 trials crashed with the same error: ImportError in line 3"
    )


@pytest.mark.parametrize("state", [OK, CANCELLED, TrialState.OOM])
def test_what_is_no_fault_pauses_nothing(state: TrialState) -> None:
    found = same_failure(trials(state, 5), fresh={5}, withdrawn={f"t{n}" for n in range(1, 6)})
    assert found is None
    assert same_failure([], fresh=set()) is None


def test_another_error_or_another_end_breaks_the_row() -> None:
    assert shared_failure([*trials(CRASHED, 2), trial(3, CRASHED, "other")]) is None
    assert shared_failure([*trials(REFUSED, 2), trial(3, CRASHED, "same")]) is None
    assert shared_failure([*trials(REFUSED, 2), trial(3, OK), trial(4, REFUSED, "same")]) is None


def test_running_and_cancelled_ones_do_not() -> None:
    found = [*trials(CRASHED, 2), trial(3, CANCELLED, "by the user"), trial(4, TrialState.PENDING)]
    assert shared_failure([*found, trial(5, CRASHED, "same")]) is not None


def test_refusals_that_alternate_are_counted_each() -> None:
    found = [trial(n, REFUSED, ("account", "partition")[n % 2]) for n in range(1, 6)]
    assert shared_failure(found[:4]) is None
    assert shared_failure(found) == "the last 3 trials were refused: partition"


def test_a_repeated_crash_pauses_before_any_success() -> None:
    found = [trial(1, CRASHED, "other"), *trials(CRASHED, 3, after=1)]
    assert shared_failure(found) == "the last 3 trials crashed with the same error: same"


@pytest.mark.parametrize("trained", [OK, TrialState.OOM])
def test_only_faults_of_no_strategy_count_after_others_trained(trained: TrialState) -> None:
    assert shared_failure([trial(1, trained), *trials(CRASHED, 3, after=1)]) is None
    reason = shared_failure(
        [trial(1, trained), *trials(REFUSED, 3, after=1, error="Invalid account")]
    )
    assert reason == "the last 3 trials were refused: Invalid account"


def test_jobs_that_somebody_else_cancels_are_reported() -> None:
    reason = shared_failure([trial(1, OK), *trials(CANCELLED, 5, after=1, error="by uid 0")])
    assert reason == "the last 5 trials were cancelled from outside with the same error: by uid 0"


def test_a_refusal_rules_out_its_layout_after_another_started() -> None:
    refused = trials(REFUSED, 2)
    assert without_early_refusals(refused) == refused, "others are tried before the same again"
    found = [*refused, trial(3, OK), trial(4, REFUSED, "more nodes than it may have")]
    assert [t.number for t in without_early_refusals(found)] == [3, 4]
    cancelled = [*refused, trial(3, CANCELLED).model_copy(update={"node_hours": 0.0})]
    assert without_early_refusals(cancelled) == cancelled, "it was withdrawn, not accepted"


def test_refused_trials_are_not_of_the_budget(store: Store) -> None:
    campaign = created(store, budget={"max_trials": 2})
    found = with_trials(store, campaign, 2)
    assert reason_to_end_search(campaign, ended(found, REFUSED), now=NOW) is None


def test_a_space_whose_layouts_were_all_refused_is_not_known() -> None:
    fixed = {"tensor_parallel": [2], "pipeline_parallel": [1], "zero_stage": [1]}
    space = SearchSpace.build(MODEL, MACHINE, nodes=1, choices=fixed | {"num_nodes": [1]})
    layouts = {replace(each, gradient_accumulation_steps=1) for each in space.lattice()}
    tried = [
        examples.trial(number, layout, seconds=1.0).model_copy(
            update={"state": REFUSED, "metrics": None, "error": "use -A"}
        )
        for number, layout in enumerate(sorted(layouts), start=1)
    ]
    proposer = Proposer(space, objective="tokens_per_s", seed=0)

    def following(found: list[Trial]) -> NextTrials:
        return next_search(examples.campaign(), found, proposer, now=NOW)

    assert following(tried).proposals, "each is tried again"
    running = tried[-1].model_copy(update={"state": TrialState.PENDING})
    assert not following([*tried[:-1], running]).proposals, "until it is known of this one"
    started = tried[0].model_copy(update={"state": CRASHED})
    end = following([started, *tried[1:]]).phase_ends or ""
    assert end.startswith(f"all {len(layouts)} layouts of the space were tried; ")
    assert end.endswith(f"; {len(layouts) - 1} of them refused: use -A")
