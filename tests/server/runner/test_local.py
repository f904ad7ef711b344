"""Real trials of several campaigns on one machine."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

from autotune.schemas import TrialState
from server.settings import Settings
from server.store import Store
from server.store.campaigns import cancel_campaign, pause_campaign, resume_campaign
from tests.requirement import require
from tests.server.asking import created
from tests.server.runner.conftest import Running
from tests.server.runner.test_kill import REAL


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One for all tests: its backend imports torch and DeepSpeed once. Trials run on the CPU."""
    require(find_spec("torch") and find_spec("deepspeed"), "torch and deepspeed")
    settings = Settings(data_dir=tmp_path_factory.mktemp("data"), poll_interval_s=0.02)
    store = Store(settings.url)
    store.upgrade()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        found = Running(settings, store)
        yield found
        found.runner.close()
    store.close()


def real(**changes: Any) -> dict[str, Any]:
    protocol = {"confirmations": 0, "most_iterations": 3}
    return REAL | {"budget": {"max_trials": 2}, "protocol": protocol} | changes


def test_campaigns_take_turns_on_this_machine(running: Running) -> None:
    campaigns = [created(running.store, **real()) for _ in range(2)]

    def all_done() -> bool:
        found = [running.campaign(campaign) for campaign in campaigns]
        assert sum(campaign.pending for campaign in found) <= 1
        return all(campaign.state == "done" for campaign in found)

    running.until(all_done)
    trials = [trial for campaign in campaigns for trial in running.trials(campaign)]
    assert {trial.state for trial in trials} == {TrialState.OK}
    assert not any(trial.simulated for trial in trials)
    order = sorted(trials, key=lambda trial: str(trial.started_at))
    assert [trial.campaign_id for trial in order] == [c.id for c in campaigns] * 2


def test_a_cancelled_trial_leaves_the_machine_to_the_next(running: Running) -> None:
    endless = {"protocol": {"measured_iterations": 1000, "warmup_iterations": 100}}
    first = created(running.store, **real(**endless))
    running.until(lambda: running.campaign(first).pending == 1)
    second = created(running.store, **real(budget={"max_trials": 1}))
    running.rounds(5)
    assert running.campaign(second).trials == 0
    with running.store.transaction() as session:
        cancel_campaign(session, first.id)
    running.until_state(second, "done")
    running.until(lambda: running.campaign(first).pending == 0)
    assert {trial.state for trial in running.trials(first)} == {TrialState.CANCELLED}


def test_a_paused_campaign_does_not_hold_the_machine(running: Running) -> None:
    first = created(running.store, **real())
    running.until(lambda: running.campaign(first).pending == 1)
    with running.store.transaction() as session:
        pause_campaign(session, first.id)
    second = created(running.store, **real(budget={"max_trials": 1}))
    running.until_state(second, "done")
    with running.store.transaction() as session:
        resume_campaign(session, first.id)
    running.until_state(first, "done")
