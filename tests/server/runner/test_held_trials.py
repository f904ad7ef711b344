"""Cancelling, pausing and taking over a campaign whose real trial runs: it waits for a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import TrialState
from server.runner.runner import Runner
from server.runner.trial_logs import attempt_folders
from server.settings import Settings
from server.store.campaigns import cancel_campaign, pause_campaign, resume_campaign
from server.store.tables import CampaignRow
from tests.evaluators.adapter.samples import MACHINE, MODEL
from tests.pace import QUICK
from tests.server.asking import body, write
from tests.server.running import Running

pytestmark = pytest.mark.usefixtures("own")

CAMPAIGN = body(
    model=asdict(MODEL),
    machine=asdict(MACHINE) | {"name": "local", "sources": []},
    nodes=1,
    pool_nodes=1,
    evaluator="local",
    adapter="my-script",
    space={"micro_batch_size": [1, 4], "gradient_accumulation_steps": 4, "zero_stage": 1},
    budget={"max_trials": 1},
    protocol={"confirmations": 0},
)


@pytest.fixture
def gate(own: Settings, tmp_path: Path) -> Path:
    """No trial goes on before this file exists."""
    script, gate = own.adapters_dir / "train.py", tmp_path / "gate"
    before, after = script.read_text().split("\nmeet()\n")
    wait = (
        f"open({str(gate)!r} + '.reached', 'w').close()\n"
        f"while not os.path.exists({str(gate)!r}):\n    time.sleep(0.02)\n"
    )
    script.write_text(f"{before}\nmeet()\n{wait}{after}")
    return gate


Create = Callable[..., Campaign]


@pytest.fixture
def create(client: TestClient, gate: Path) -> Create:  # noqa: ARG001 (trials wait for it)
    def post(**changes: Any) -> Campaign:
        answer = client.post("/api/v1/campaigns", json=CAMPAIGN | changes)
        assert answer.status_code == 201, answer.text
        return Campaign.model_validate(answer.json())

    return post


def begun(running: Running, campaign: Campaign, gate: Path) -> Path:
    """The folder of its only trial, once that waits for the gate."""
    running.until(gate.with_name(f"{gate.name}.reached").exists)
    [trial] = running.trials(campaign)
    return running.settings.trial_dir(trial.token)


def test_a_cancelled_trial_leaves_the_machine_to_the_next(
    running: Running, create: Create, gate: Path
) -> None:
    first = create()
    begun(running, first, gate)
    second = create()
    running.rounds(5)
    assert running.campaign(second).trials == 0
    write(running.store, cancel_campaign, first.id)
    running.until(lambda: running.campaign(first).pending == 0)
    gate.touch()
    running.until_state(second, "done")
    assert {trial.state for trial in running.trials(first)} == {TrialState.CANCELLED}


def test_a_paused_campaign_does_not_hold_the_machine(
    running: Running, create: Create, gate: Path
) -> None:
    first = create(budget={"max_trials": 2})
    begun(running, first, gate)
    write(running.store, pause_campaign, first.id)
    second = create()
    gate.touch()
    running.until_state(second, "done")
    assert running.campaign(first).trials == 1
    write(running.store, resume_campaign, first.id)
    running.until_state(first, "done")


def test_what_a_runner_taken_for_dead_still_writes_is_void(
    running: Running, create: Create, gate: Path
) -> None:
    campaign = create()
    folder = begun(running, campaign, gate)
    with running.store.transaction() as session:
        session.get_one(CampaignRow, campaign.id).lease_until = 0.0
    successor = Runner(running.settings, running.store, pace=QUICK)
    running.until(lambda: len(attempt_folders(folder)) == 2, runner=successor)
    running.runner.round()  # finds its lease lost, and ends its trial
    before, after = attempt_folders(folder)
    running.until(lambda: (before / "result.json").exists(), runner=successor)
    gate.touch()
    running.until(lambda: running.campaign(campaign).state == "done", runner=successor)
    successor.close()
    [trial] = running.trials(campaign)
    assert (trial.state, trial.log_path) == (TrialState.OK, str(after / "trial.log"))
    assert [path.name for path in folder.iterdir() if not path.is_dir()] == []
