"""Campaigns from their first trial to their end, with the simulated evaluator."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from autotune.recommendation.projected import all_contenders
from autotune.recommendation.recommendation import recommend
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState, TrialState
from autotune.schemas.requests import BudgetExtension
from autotune.schemas.trials import Trial
from evaluators.trial import TrialOutcome
from search_spaces.fields import as_table
from server.runner.runner import Runner
from server.store.campaigns import cancel_campaign, extend_campaign, pause_campaign, resume_campaign
from server.store.events import events_since, last_event_id
from server.store.leases import free_the_gone
from server.store.outcomes import BEST
from server.store.tables import CampaignRow, OutcomeRow, TrialRow
from tests.pace import QUICK
from tests.server.asking import created, read, write
from tests.server.running import Running
from tests.server.statements import statements_of

SLOW = {"time_scale": 1.0}  # trials that last longer than a test
SHORT = {"budget": {"max_trials": 3}, "protocol": {"confirmations": 0}}
"""For what shows after a few trials."""


@pytest.mark.each_database
def test_a_campaign_searches_confirms_and_recommends(running_on_each: Running) -> None:
    running = running_on_each
    done = running.done(pool_nodes=4)
    trials = running.trials(done)
    assert done.screening is not None
    assert done.screening.nodes is None, "few nodes as they are"
    assert all(trial.stands_for_nodes is None for trial in trials)
    purposes = Counter(trial.purpose for trial in trials)
    assert trials[0].purpose == "baseline"
    assert purposes["baseline"] + purposes["search"] == 6
    assert 1 <= purposes["confirmation"] <= 2
    assert all(trial.state is not TrialState.PENDING for trial in trials)
    assert done.reason == "Budget spent: 6 trials."
    assert done.started_at is not None
    assert done.finished_at is not None
    found = recommend(done, trials)
    assert found is not None
    assert not found.provisional
    assert found.best.confirmed
    events = read(running.store, events_since, 0, limit=1000)
    assert events[-1].kind == "recommendation"
    ended = Counter(e.trial.number for e in events if e.trial is not None)
    assert set(ended.values()) == {2}, "each trial is announced when it starts and when it ends"
    first = next(trial.number for trial in trials if trial.state is TrialState.OK)
    start, end = (at for at, e in enumerate(events) if e.trial and e.trial.number == first)
    between = {e.kind for e in events[start:end]}
    assert "campaign" in between, "a new best is announced before the trial's end"
    assert done.best_objective == pytest.approx(found.best.metrics.tokens_per_s)
    with running.store.session() as session:
        stored = session.get_one(OutcomeRow, (done.id, BEST.name))
    assert stored.ended == len(trials)
    check_search(trials)


def check_search(trials: Sequence[Trial]) -> None:
    """They differ, and have what a trial must have."""
    searched = [trial.strategy for trial in trials if trial.purpose != "confirmation"]
    layouts = {replace(s, gradient_accumulation_steps=1) for s in searched}
    assert len(layouts) == len(searched)
    for trial in trials:
        assert trial.simulated
        assert trial.host
        assert trial.versions
        assert trial.log_path
        assert trial.duration_s
        assert trial.node_hours == pytest.approx(trial.strategy.num_nodes * trial.duration_s / 3600)
        assert trial.predicted_iteration_time_s
        assert trial.predicted_memory_gib
        assert (trial.metrics is None) == (trial.state is not TrialState.OK)
    confirmed = next(t for t in trials if t.purpose == "confirmation")
    own = confirmed.strategy.gradient_accumulation_steps
    assert [a.gradient_accumulation_steps for a in confirmed.accumulations] == [own]
    ok = next(t for t in trials if t.purpose == "search" and t.state is TrialState.OK)
    assert len(ok.accumulations) == 2
    check_expectations(trials)


def check_expectations(trials: Sequence[Trial]) -> None:
    """They follow from the trials before: those that fitted took the node-hours that they were to
    take, unless they were given up."""
    first, *others = [trial for trial in trials if trial.expected is not None]
    assert len(others) == len(trials) - 1
    assert first.expected is not None
    assert first.expected.best_so_far is None
    assert any(t.expected and t.expected.probability_better is not None for t in others)
    for trial in (trial for trial in trials if trial.purpose == "confirmation"):
        assert trial.expected is not None
        assert trial.metrics is not None
        time_s = trial.metrics.iteration_time_s
        assert trial.predicted_iteration_time_s == pytest.approx(time_s, rel=0.1)
        assert trial.expected.best_so_far == pytest.approx(trial.expected.objective, rel=0.1)
        assert trial.expected.node_hours == pytest.approx(trial.node_hours, rel=0.5)


def test_the_users_own_layout_is_measured_first_and_compared(running: Running) -> None:
    done = running.done(**SHORT, baseline="tp=8,pp=2,mbs=1,gas=16,zero=0")
    first, *others = running.trials(done)
    assert (first.purpose, first.strategy.zero_stage) == ("baseline", 0), "not of the space"
    assert all(trial.purpose != "baseline" for trial in others)
    assert done.trials == done.request.budget.max_trials
    found = recommend(done, [first, *others])
    assert found is not None
    assert found.baseline is not None
    assert found.baseline.name == "your own layout"
    assert first.metrics is not None
    assert found.speedup_over_baseline is not None
    as_measured = found.best.metrics.tokens_per_s / first.metrics.tokens_per_s
    assert 1 < found.speedup_over_baseline < as_measured, "at the larger batch of the best"


def test_a_campaign_survives_a_baseline_that_runs_out_of_memory(running: Running) -> None:
    done = running.done(
        **SHORT | {"budget": {"max_trials": 4}},
        model="gpt-175b",
        nodes=16,
        pool_nodes=16,
        space={"preset": "table-v", "num_nodes": 16},
        baseline="tp=8,pp=1,mbs=4,zero=0",
    )
    trials = running.trials(done)
    assert [t.state for t in trials if t.purpose == "baseline"] == [TrialState.OOM]
    found = recommend(done, trials)
    assert found is not None
    assert found.baseline is not None
    assert found.baseline.comparison == "Your own layout runs out of memory."
    assert found.speedup_over_baseline is None


def test_a_campaign_may_have_no_baseline_or_only_a_baseline(running: Running) -> None:
    one = {"budget": {"max_trials": 1}, "protocol": {"confirmations": 0}}
    assert [t.purpose for t in running.trials(running.done(baseline="none", **one))] == ["search"]
    alone = running.done(**one)
    trials = running.trials(alone)
    assert [trial.purpose for trial in trials] == ["baseline"]
    found = recommend(alone, trials)
    assert found is not None
    assert found.best.trial_numbers == [1]
    assert found.speedup_over_baseline == 1.0


def test_the_same_seed_gives_the_same_campaign(running: Running) -> None:
    """One trial at a time: what the proposer knows at each choice is then the same, too."""
    one = {"pool_nodes": 4, "space": {"preset": "table-v", "num_nodes": 4}, "seed": 3}
    one |= {"fresh": True}  # the second would start from what the first has shown
    tried = [
        [(t.strategy, t.metrics) for t in running.trials(running.done(**SHORT, **one))]
        for _ in range(2)
    ]
    assert len(tried[0]) == 3
    assert tried[0] == tried[1]


def test_as_many_trials_run_at_once_as_nodes_allow(running: Running) -> None:
    campaign = created(running.store, pool_nodes=9, **SLOW)
    running.rounds(6)
    held = sum(trial.strategy.num_nodes for trial in running.trials(campaign))
    assert 8 <= held <= 9


def test_progress_of_trials_is_written_only_when_it_changes(running: Running) -> None:
    campaign = created(running.store, **SLOW)
    running.until(
        lambda: (
            {trial.phase for trial in running.trials(campaign)} == {"running"}
            and running.campaign(campaign).pending >= 2
        )
    )
    running.rounds(3)
    before = read(running.store, last_event_id)
    noted = [e.trial for e in read(running.store, events_since, 0) if e.trial is not None]
    assert len(noted) == 2 * running.campaign(campaign).pending
    running.rounds(5)
    assert read(running.store, last_event_id) == before


def test_a_round_in_which_nothing_changed_reads_no_rows(running: Running) -> None:
    campaigns = [created(running.store, **SLOW) for _ in range(3)]
    running.until(lambda: all(running.campaign(c).pending >= 2 for c in campaigns))
    running.rounds(10)
    with statements_of(running.store) as statements:
        running.runner.round()
    assert not [text for text in statements if "FROM trials" in text.partition("WHERE")[0]]
    assert len([text for text in statements if "max(events.id)" in text]) == 1


def test_a_paused_campaign_lets_its_trials_end_and_starts_none(running: Running) -> None:
    store = running.store
    campaign = created(store, **SHORT, time_scale=0.001)
    running.until(lambda: running.campaign(campaign).pending > 0)
    write(store, pause_campaign, campaign.id)
    started = running.campaign(campaign).trials
    running.until(lambda: running.campaign(campaign).pending == 0)
    running.rounds(5)
    paused = running.campaign(campaign)
    assert paused.state is CampaignState.PAUSED
    assert paused.trials == started
    states = {trial.state for trial in running.trials(campaign)}
    assert TrialState.CANCELLED not in states
    write(store, resume_campaign, campaign.id)
    running.until_state(campaign, "done")


def test_a_cancelled_campaign_ends_its_trials(running: Running) -> None:
    campaign = created(running.store, **SLOW)
    running.until(lambda: running.campaign(campaign).pending > 0)
    write(running.store, cancel_campaign, campaign.id)
    running.until(lambda: running.campaign(campaign).pending == 0)
    running.rounds(3)
    assert {trial.state for trial in running.trials(campaign)} == {TrialState.CANCELLED}
    assert running.campaign(campaign).state is CampaignState.CANCELLED
    with running.store.session() as session:
        assert session.get_one(CampaignRow, campaign.id).lease_owner is None


def test_an_extended_campaign_goes_on_where_it_ended(running: Running) -> None:
    campaign = running.done(budget={"max_trials": 1}, protocol={"confirmations": 0})
    before = running.trials(campaign)
    write(running.store, extend_campaign, campaign.id, BudgetExtension(max_trials=2))
    done = running.until_state(campaign, "done")
    assert done.trials == 2
    assert running.trials(campaign)[:1] == before


def test_a_deadline_ends_the_campaign(running: Running) -> None:
    deadline = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
    done = running.done(budget={"max_trials": 50, "deadline": deadline}, time_scale=0.005)
    assert done.reason.startswith("Deadline passed: ")
    assert done.confirmations == 0


def test_a_space_that_is_used_up_ends_the_search(running: Running) -> None:
    space = {
        "tensor_parallel": [2, 4],
        "pipeline_parallel": 8,
        "micro_batch_size": 1,
        "gradient_accumulation_steps": [8, 16],
        "zero_stage": 1,
        "num_nodes": 4,
    }
    done = running.done(**SHORT, space=space)
    assert "all 2 layouts" in done.reason
    assert done.trials == 2


def test_a_search_ends_when_no_untried_layout_is_likely_faster(running: Running) -> None:
    done = running.done(
        budget={"max_trials": 40, "stop_early": True}, protocol={"confirmations": 0}
    )
    assert "1 % faster" in done.reason
    assert 2 <= done.trials < 40


def test_a_short_trainings_search_ends_when_trials_cost_too_much(
    running: Running,
) -> None:
    """A million tokens take a fraction of a node-hour: nothing is worth a second look."""
    budget = {"max_trials": 40, "stop_early": True, "train_tokens": 1e6}
    done = running.done(budget=budget, protocol={"confirmations": 3}, pool_nodes=4)
    assert "and is expected to save" in done.reason
    assert "over 1 million tokens" in done.reason
    assert done.trials < 5
    assert done.confirmations == 1, "a runner-up is not worth it either"


def test_campaigns_share_a_runner_fairly(running: Running) -> None:
    """No campaign waits until another one is done."""
    campaigns = [created(running.store, **SHORT, time_scale=0.001) for _ in range(3)]
    running.until(lambda: all(running.campaign(c).trials >= 2 for c in campaigns))
    assert all(running.campaign(c).state is CampaignState.RUNNING for c in campaigns)
    for campaign in campaigns:
        running.until_state(campaign, "done")


def test_a_campaign_that_fails_says_why_and_others_go_on(running: Running) -> None:
    store = running.store
    broken, sound = created(store, **SLOW), created(store, **SHORT)
    running.until(lambda: running.campaign(broken).pending > 0)
    for trial in running.trials(broken):
        directory = running.settings.trial_dir(trial.token)
        (directory / "submitted.json").write_text("{}")
    failed = running.until_state(broken, "failed")
    assert failed.reason.startswith("KeyError: ")
    assert "\n" not in failed.reason
    running.until_state(sound, "done")
    running.until(lambda: running.campaign(broken).pending == 0)
    assert {t.state for t in running.trials(broken)} == {TrialState.LOST}


def test_a_campaign_whose_row_makes_no_sense_fails_alone(running: Running) -> None:
    store = running.store
    broken, sound = created(store), created(store, **SHORT)
    with store.transaction() as session:
        row = session.get_one(CampaignRow, broken.id)
        row.model = row.model | {"num_attention_heads": 7}
    assert "num_attention_heads" in running.until_state(broken, "failed").reason
    running.until_state(sound, "done")
    with store.session() as session:
        row = session.get_one(CampaignRow, broken.id)
        assert row.lease_owner is None, "nothing is left to do for it"


def test_trials_that_all_crash_alike_pause_the_campaign(running: Running) -> None:
    store = running.store
    campaign = created(store, budget={"max_trials": 20}, pool_nodes=4, **SLOW)

    def crash_what_runs() -> bool:
        for trial in running.trials(campaign):
            directory = running.settings.trial_dir(trial.token)
            if trial.state is TrialState.PENDING and directory.exists():
                outcome = TrialOutcome(
                    status=TrialState.CRASHED,
                    started_at=datetime.now(UTC),
                    duration_s=1.0,
                    simulated=True,
                    error="ImportError: no module named flash_attn",
                )
                (directory / "result.json").write_text(json.dumps(outcome.as_dict()))
        return running.campaign(campaign).state is CampaignState.PAUSED

    running.until(crash_what_runs)
    paused = running.campaign(campaign)
    assert paused.trials == 3
    assert "all 3 trials crashed with the same error: ImportError" in paused.reason


def test_a_runner_that_was_taken_over_stores_nothing(running: Running) -> None:
    campaign = created(running.store, **SLOW)
    running.until(lambda: running.campaign(campaign).pending > 0)
    with running.store.transaction() as session:
        row = session.get_one(CampaignRow, campaign.id)
        row.lease_owner, row.lease_epoch = "another-host/1/1/1.00", row.lease_epoch + 1
    for trial in running.trials(campaign):
        outcome = TrialOutcome(
            status=TrialState.OOM, started_at=datetime.now(UTC), duration_s=1.0, simulated=True
        )
        directory = running.settings.trial_dir(trial.token)
        (directory / "result.json").write_text(json.dumps(outcome.as_dict()))
    running.rounds(3)
    assert {trial.state for trial in running.trials(campaign)} == {TrialState.PENDING}


def test_a_second_runner_takes_over_what_the_first_left(running: Running) -> None:
    """As after a crash: rows and directories are all that there is."""
    campaign = created(running.store, **SHORT, time_scale=0.002)
    running.until(lambda: running.campaign(campaign).trials >= 2)
    before = {t.number: t for t in running.trials(campaign) if t.state is not TrialState.PENDING}
    with running.store.transaction() as session:
        session.get_one(CampaignRow, campaign.id).lease_until = 0.0
    second = Runner(running.settings, running.store, pace=QUICK)
    running.until(lambda: running.campaign(campaign).state == "done", runner=second)
    second.close()
    after = {trial.number: trial for trial in running.trials(campaign)}
    assert {number: after[number] for number in before} == before
    assert len({trial.token for trial in after.values()}) == len(after)


def test_a_new_lead_amid_a_confirmation_starts_no_other(running: Running) -> None:
    """The layout that is being confirmed is now a runner-up; the lead waits until it has ended."""
    store = running.store
    campaign = created(
        store,
        budget={"max_trials": 5, "stop_early": False, "train_tokens": 1e7},
        protocol={"confirmations": 1},
        pool_nodes=4,
        time_scale=0.002,
    )
    running.until(lambda: running.campaign(campaign).confirmations > 0)
    running.runner.close()
    trials = running.trials(campaign)
    assert (trials[-1].purpose, trials[-1].state) == ("confirmation", TrialState.PENDING)
    _, second = all_contenders(campaign, trials[:-1])[:2]
    with store.transaction() as session:
        row = session.get_one(TrialRow, trials[-1].id)
        row.strategy = as_table(second.strategy)
    shutil.rmtree(running.settings.trial_dir(trials[-1].token))
    later = Running(running.settings, store)
    later.until_state(campaign, "done")
    later.runner.close()
    confirmed, *others = (t for t in running.trials(campaign) if t.purpose == "confirmation")
    assert confirmed.state is TrialState.OK
    assert confirmed.strategy == second.strategy
    assert confirmed.finished_at is not None
    assert all(each.created_at >= confirmed.finished_at for each in others)


def test_pending_rows_that_never_started_are_started(running: Running) -> None:
    """A runner may die between writing a row and starting its trial."""
    campaign = running.done(**SHORT | {"budget": {"max_trials": 2}})
    with running.store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE campaigns SET state = 'running'")
        connection.exec_driver_sql(
            "UPDATE trials SET state = 'pending', metrics = NULL, token = 'new' WHERE number = 2"
        )
    running.until_state(campaign, "done")
    trial = running.trials(campaign)[1]
    assert trial.token == "new"
    assert trial.state is not TrialState.PENDING
    assert (running.settings.trial_dir("new") / "result.json").exists()


def test_leases_are_given_back_at_the_end(running: Running) -> None:
    campaign: Campaign = created(running.store, **SLOW)
    running.rounds(3)
    running.runner.close()
    with running.store.transaction() as session:
        assert session.get_one(CampaignRow, campaign.id).lease_owner is None
        assert free_the_gone(session) == 0
