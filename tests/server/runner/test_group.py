"""Two people share one service on PostgreSQL with three runners: one serves Slurm, one Ray.

REST of two users -> three runners -> a real Slurm, a real Ray cluster, the simulator -> REST.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from autotune.schemas.campaigns import Campaign
from autotune.schemas.recommendations import Recommendation
from autotune.schemas.users import UserCreate
from server.app import create_app
from server.runner.runner import Runner
from server.settings import Settings
from server.store import Store
from server.store.runners import note_waiting
from server.store.users import add_user
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import slurm
from tests.patience import until
from tests.ray_nodes import RayNodes, ray_nodes
from tests.server import postgres
from tests.server.asking import body
from tests.server.entitled import ADDRESS
from tests.server.runner.test_slurm import QUESTION, quick

__all__ = ["ray_nodes", "slurm"]

pytestmark = pytest.mark.xdist_group("ray")

SHORT: dict[str, Any] = {
    "budget": {"max_trials": 1},
    "protocol": QUESTION["protocol"] | {"confirmations": 0},
    "baseline": "none",
}
SIMULATED: dict[str, Any] = {"budget": {"max_trials": 2}, "protocol": {"confirmations": 0}}
ON_RAY = {key: value for key, value in QUESTION.items() if key != "slurm"} | {
    "evaluator": "ray",
    "machine": QUESTION["machine"] | {"gpu": "none"},
}


class SharedService:
    """The application for a group, its users' tokens, and its runners."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        app = create_app(settings)
        self.store: Store = app.state.store
        self.client = TestClient(app, base_url=ADDRESS)
        self.tokens: dict[str, str] = {}
        self.runners: list[Runner] = []
        with self.store.transaction() as session:
            for name in ("ada", "ben"):
                user = UserCreate.model_validate({"name": name, "scope": "submit"})
                self.tokens[name] = add_user(session, user)

    def ask(self, user: str, method: str, path: str, **options: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.tokens[user]}"}
        return self.client.request(method, f"/api/v1{path}", headers=headers, **options)

    def create(self, user: str, question: dict[str, Any]) -> Campaign:
        answer = self.ask(user, "POST", "/campaigns", json=question)
        assert answer.status_code == 201, answer.text
        return Campaign.model_validate(answer.json())

    def campaign(self, user: str, campaign: Campaign) -> Campaign:
        return Campaign.model_validate(self.ask(user, "GET", f"/campaigns/{campaign.id}").json())

    def seen_by(self, user: str) -> set[int]:
        return {item["id"] for item in self.ask(user, "GET", "/campaigns").json()["items"]}

    def run(self, *evaluators: str, user: str = "") -> None:
        takes = {"evaluators": evaluators, "runner_user": user}
        self.runners.append(Runner(self.settings.model_copy(update=takes), self.store))

    def until_done(self, user: str, campaign: Campaign) -> Campaign:
        def is_done() -> bool:
            moving = [runner.round() for runner in self.runners]
            return not any(moving) and self.campaign(user, campaign).state == "done"

        until(is_done, f"campaign {campaign.id} done")
        return self.campaign(user, campaign)


@pytest.fixture
def shared(postgres_url: str, tmp_path: Path, ray_nodes: RayNodes) -> Iterator[SharedService]:
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    on_ray = f'[ray]\naddress = "{ray_nodes.address}"\nfolder = "{tmp_path}"\n'
    (profiles / "quick.toml").write_text(quick(tmp_path))
    (profiles / "on-ray.toml").write_text(quick(tmp_path) + on_ray)
    settings = Settings(
        data_dir=tmp_path / "data",
        profiles_dir=profiles,
        database_url=postgres.emptied(postgres_url),
        poll_interval_s=0.1,
        group=True,
    )
    service = SharedService(settings)
    with service.client:
        yield service
    for runner in service.runners:
        runner.close()
    service.store.close()


def test_two_people_share_a_service_with_runners_for_slurm_ray_and_one_of_them(
    shared: SharedService, slurm: Cluster
) -> None:
    assert slurm.nodes
    on_slurm = shared.create("ada", QUESTION | SHORT | {"slurm": {"profile": "quick"}})
    on_ray = shared.create("ben", ON_RAY | SHORT | {"ray": {"profile": "on-ray"}, "private": True})
    everybodys = shared.create("ben", body(**SIMULATED))
    own = shared.create("ada", body(**SIMULATED, own_runner=True))
    shared.run("simulated", "slurm")
    shared.run("ray")
    assert shared.until_done("ada", on_slurm).owner == "ada"
    assert shared.until_done("ben", on_ray).owner == "ben"
    shared.until_done("ben", everybodys)
    note_waiting(shared.store, silent_s=60.0)
    assert "waits for a runner of ada" in shared.campaign("ben", own).reason
    shared.run("simulated", user="ada")
    shared.until_done("ada", own)
    assert shared.seen_by("ada") == {on_slurm.id, everybodys.id, own.id}
    assert shared.seen_by("ben") == {on_slurm.id, on_ray.id, everybodys.id, own.id}
    assert shared.ask("ada", "GET", f"/campaigns/{on_ray.id}").status_code == 404
    assert shared.ask("ben", "POST", f"/campaigns/{on_slurm.id}/cancel").status_code == 403
    for user, campaign in [("ada", on_slurm), ("ben", on_ray), ("ben", everybodys), ("ada", own)]:
        answer = shared.ask(user, "GET", f"/campaigns/{campaign.id}/recommendation")
        assert Recommendation.model_validate(answer.json()).best.strategy
