"""A service on a real Slurm whose trials last a second: its database and campaigns."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient
from sqlalchemy import func, select

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState
from autotune.schemas.trials import Trial
from server.app import create_app
from server.settings import Settings
from server.store import Store
from server.store.tables import CampaignRow
from server.store.trials import all_trials
from tests.evaluators.program.checkout import make_checkout
from tests.patience import TRIAL_LIMIT_S
from tests.server.entitled import entitled
from tests.server.faults.questions import ONE_RANK, SPACE

PROFILE = """
python = "{python}"

[slurm]
gpu_request = "none"

[trainer]
adapter = "{checkout}/quick.toml"

[polling]
interval_s = 0.5

[retries]
attempts = 6
node_failures = 2

[pilot]
nodes = 8
idle_release_s = 1
"""
QUESTION: dict[str, Any] = {
    "model": "tiny",
    "machine": ONE_RANK | {"max_nodes": 64},
    "nodes": 4,
    "pool_nodes": 8,
    "evaluator": "slurm",
    "space": SPACE
    | {
        "pipeline_parallel": [1, 2],
        "gradient_accumulation_steps": 8,
        "zero_stage": [0, 1],
        "num_nodes": [1, 2, 4],
        "activation_checkpointing": ["none", "full"],
    },
    "protocol": {
        "confirmations": 0,
        "measured_iterations": 1,
        "most_iterations": 1,
        "time_limit_s": TRIAL_LIMIT_S,
    },
}


@dataclass(frozen=True)
class Scene:
    """One database and one folder of trials."""

    settings: Settings
    store: Store
    client: TestClient

    @classmethod
    def build(cls, folder: Path) -> Scene:
        checkout = make_checkout(folder / "Megatron-DeepSpeed")
        profiles = folder / "profiles"
        profiles.mkdir()
        text = PROFILE.format(python=sys.executable, checkout=checkout)
        (profiles / "quick.toml").write_text(text)
        settings = Settings(data_dir=folder / "data", profiles_dir=profiles)
        app = create_app(settings)
        return cls(settings, app.state.store, entitled(app))

    def create(self, *, trials: int, seed: int, mode: str) -> Campaign:
        """Without a baseline: these take all nodes, and Slurm lets narrow trials of others pass
        them."""
        question = QUESTION | {
            "slurm": {"profile": "quick", "mode": mode},
            "seed": seed,
            "budget": {"max_trials": trials},
            "baseline": "none",
        }
        answer = self.client.post("/api/v1/campaigns", json=question)
        assert answer.status_code == 201, answer.text
        return Campaign.model_validate(answer.json())

    def are_done(self, campaigns: Sequence[Campaign]) -> bool:
        """Whether all have ended well; all that is told of a campaign would cost far more."""
        done = select(func.count()).where(
            CampaignRow.id.in_([campaign.id for campaign in campaigns]),
            CampaignRow.state == CampaignState.DONE,
        )
        with self.store.session() as session:
            return session.scalar(done) == len(campaigns)

    def trials(self, campaign: Campaign) -> list[Trial]:
        with self.store.session() as session:
            return all_trials(session, campaign.id)
