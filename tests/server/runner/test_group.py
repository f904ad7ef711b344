"""Two people share one service on PostgreSQL with runners for all, and one of their own.

That runners serve Slurm and Ray is for `test_slurm` and `test_ray` to show.
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
from server.store.users import add_user
from server.store.waiting import WaitingNotes
from tests.pace import QUICK
from tests.patience import until
from tests.server import postgres
from tests.server.asking import body
from tests.server.entitled import ADDRESS

SHORT: dict[str, Any] = {"budget": {"max_trials": 1}, "protocol": {"confirmations": 0}}


class SharedService:
    """The application for a group, its users' tokens, and its runners."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        app = create_app(settings, pace=QUICK)
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

    def create(self, user: str, **changes: Any) -> Campaign:
        answer = self.ask(user, "POST", "/campaigns", json=body(**SHORT | changes))
        assert answer.status_code == 201, answer.text
        return Campaign.model_validate(answer.json())

    def campaign(self, user: str, campaign: Campaign) -> Campaign:
        return Campaign.model_validate(self.ask(user, "GET", f"/campaigns/{campaign.id}").json())

    def seen_by(self, user: str) -> set[int]:
        return {item["id"] for item in self.ask(user, "GET", "/campaigns").json()["items"]}

    def run(self, *evaluators: str, user: str = "") -> None:
        takes = {"evaluators": evaluators, "runner_user": user}
        self.runners.append(Runner(self.settings.model_copy(update=takes), self.store, pace=QUICK))

    def rest(self) -> None:
        """Rounds of all runners until nothing moves and nothing is claimed."""
        for _ in range(3):
            for runner in self.runners:
                runner.round()

    def until_done(self, user: str, campaign: Campaign) -> Campaign:
        def is_done() -> bool:
            moving = [runner.round() for runner in self.runners]
            return not any(moving) and self.campaign(user, campaign).state == "done"

        until(is_done, f"campaign {campaign.id} done")
        return self.campaign(user, campaign)


@pytest.fixture
def shared(postgres_url: str, tmp_path: Path) -> Iterator[SharedService]:
    settings = Settings(
        data_dir=tmp_path / "data",
        database_url=postgres.emptied(postgres_url),
        group=True,
    )
    service = SharedService(settings)
    with service.client:
        yield service
    for runner in service.runners:
        runner.close()
    service.store.close()


def test_two_people_share_a_service_with_common_and_own_runners(
    shared: SharedService,
) -> None:
    adas, private = shared.create("ada"), shared.create("ben", private=True)
    own = shared.create("ada", own_runner=True)
    shared.run("slurm", "ray")
    shared.rest()
    notes = WaitingNotes(shared.store)
    notes.look()
    notes.look()
    assert "takes simulated trials" in shared.campaign("ada", adas).reason
    shared.run("simulated")
    assert shared.until_done("ada", adas).owner == "ada"
    assert shared.until_done("ben", private).owner == "ben"
    notes.look()
    assert "waits for a runner of ada" in shared.campaign("ben", own).reason
    shared.run("simulated", user="ada")
    shared.until_done("ada", own)
    assert shared.seen_by("ada") == {adas.id, own.id}
    assert shared.seen_by("ben") == {adas.id, private.id, own.id}
    assert shared.ask("ada", "GET", f"/campaigns/{private.id}").status_code == 404
    assert shared.ask("ben", "POST", f"/campaigns/{adas.id}/cancel").status_code == 403
    for user, campaign in [("ada", adas), ("ben", private), ("ada", own)]:
        answer = shared.ask(user, "GET", f"/campaigns/{campaign.id}/recommendation")
        assert Recommendation.model_validate(answer.json()).best.strategy
