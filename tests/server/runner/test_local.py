"""Real trials of several campaigns on one machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from autotune.schemas.choices import TrialState
from evaluators.trial import read_result, write_result
from server.runner.trial_logs import attempt_folders
from server.settings import Settings
from server.store import Store
from server.store.store import announce
from server.store.tables import CampaignRow, TrialRow
from tests.requirement import require
from tests.server.asking import created
from tests.server.runner.test_kill import REAL
from tests.server.running import Running

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One for all tests: its backend imports torch and DeepSpeed once. Trials run on the CPU."""
    require(find_spec("torch") and find_spec("deepspeed"), "torch and deepspeed")
    settings = Settings(data_dir=tmp_path_factory.mktemp("data"))
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


def test_a_mixture_of_experts_is_tuned_for_real(running: Running) -> None:
    """Experts and sequences are distributed over two of four ranks each."""
    campaign = created(
        running.store,
        **real(
            model="tiny-moe",
            machine=REAL["machine"] | {"gpus_per_node": 4},
            space={
                "preset": "tiny-moe-local",
                "tensor_parallel": 1,
                "pipeline_parallel": 1,
                "context_parallel": 2,
                "expert_parallel": 2,
                "micro_batch_size": 1,
                "gradient_accumulation_steps": 2,
                "zero_stage": [0, 2],
                "activation_checkpointing": "none",
                "settings": {"routing": "balanced"},
            },
        ),
    )
    running.until_state(campaign, "done")
    trials = running.trials(campaign)
    assert {trial.state for trial in trials} == {TrialState.OK}
    assert {trial.strategy.zero_stage for trial in trials} == {0, 2}
    assert {trial.strategy.expert_parallel for trial in trials} == {2}
    assert {trial.metrics and trial.metrics.routing for trial in trials} == {"balanced"}


def test_a_trial_ended_by_a_runner_that_lost_its_lease_is_rerun(
    running: Running,
) -> None:
    campaign = created(running.store, **real(budget={"max_trials": 1}))
    running.until_state(campaign, "done")
    running.rounds(2)  # the next lease is another one
    [trial] = running.trials(campaign)
    assert trial.log_path is not None
    folder = Path(trial.log_path).parent
    outcome = read_result(folder)
    assert outcome is not None
    write_result(folder, replace(outcome, status=TrialState.CANCELLED))
    with running.store.transaction() as session:
        session.get_one(CampaignRow, campaign.id).state = "running"
        session.get_one(TrialRow, trial.id).state = "pending"
        announce(session, "campaign", campaign_id=campaign.id)
    running.until_state(campaign, "done")
    [again] = running.trials(campaign)
    assert (again.state, len(attempt_folders(folder.parent))) == (TrialState.OK, 2)
