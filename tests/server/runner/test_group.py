"""Two people share one service on PostgreSQL with runners for all, and one of their own.

That runners serve Slurm and Ray is for `test_slurm` and `test_ray` to show.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.schemas.campaigns import Campaign
from autotune.schemas.recommendations import Recommendation
from server.runner.runner import Runner
from server.settings import Settings
from server.store.waiting import WaitingNotes
from tests.pace import QUICK
from tests.patience import until
from tests.server import postgres
from tests.server.api.test_group import Group

SHORT: dict[str, Any] = {"budget": {"max_trials": 1}, "protocol": {"confirmations": 0}}


class SharedService(Group):
    """The application for a group, and its runners."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.settings = settings
        self.runners: list[Runner] = []

    def campaign(self, user: str, number: int) -> Campaign:
        return Campaign.model_validate(self.ask(user, "GET", f"/campaigns/{number}").json())

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

    def until_done(self, user: str, number: int) -> Campaign:
        def is_done() -> bool:
            moving = [runner.round() for runner in self.runners]
            return not any(moving) and self.campaign(user, number).state == "done"

        until(is_done, f"campaign {number} done")
        return self.campaign(user, number)


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
    sues, private = shared.made("sue", **SHORT), shared.made("sam", private=True, **SHORT)
    own = shared.made("sue", own_runner=True, **SHORT)
    shared.run("slurm", "ray")
    shared.rest()
    notes = WaitingNotes(shared.store)
    notes.look()
    notes.look()
    assert "takes simulated trials" in shared.campaign("sue", sues).reason
    shared.run("simulated")
    assert shared.until_done("sue", sues).owner == "sue"
    assert shared.until_done("sam", private).owner == "sam"
    notes.look()
    assert "waits for a runner of sue" in shared.campaign("sam", own).reason
    shared.run("simulated", user="sue")
    shared.until_done("sue", own)
    assert shared.seen_by("sue") == {sues, own}
    assert shared.seen_by("sam") == {sues, private, own}
    assert shared.ask("sue", "GET", f"/campaigns/{private}").status_code == 404
    assert shared.ask("sam", "POST", f"/campaigns/{sues}/cancel").status_code == 403
    for user, campaign in [("sue", sues), ("sam", private), ("sue", own)]:
        answer = shared.ask(user, "GET", f"/campaigns/{campaign}/recommendation")
        assert Recommendation.model_validate(answer.json()).best.strategy
