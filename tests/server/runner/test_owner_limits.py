from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import update

from server.store.tables import CampaignRow, UserRow
from tests.server.asking import created
from tests.server.runner.conftest import Running
from tests.server.runner.test_campaign import SLOW


def test_an_owner_has_no_more_trials_at_once_than_the_limit_over_all_campaigns(
    running: Running,
) -> None:
    campaigns = [created(running.store, seed=seed, **SLOW) for seed in range(2)]
    with running.store.transaction() as session:
        now = datetime.now(UTC)
        session.add(UserRow(name="ada", scope="submit", created_at=now, most_trials=1))
        session.execute(update(CampaignRow).values(owner="ada"))
    running.until(lambda: bool(running.campaign(campaigns[1]).reason))
    assert "ada may have 1 at once" in running.campaign(campaigns[1]).reason
    running.rounds(5)
    assert sum(running.campaign(campaign).pending for campaign in campaigns) == 1
    with running.store.transaction() as session:
        session.execute(update(UserRow).values(most_trials=3))
    running.until(lambda: sum(running.campaign(each).pending for each in campaigns) == 3)
    assert running.campaign(campaigns[1]).pending
    assert running.campaign(campaigns[1]).reason == ""
