"""How a recommendation stands in its space, as the service tells it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from fastapi import FastAPI
from sqlalchemy import delete

from autotune.schemas.campaigns import Campaign
from server.api.campaign_cache import CampaignCache
from server.app import create_app
from server.store import Store
from server.store.tables import OutcomeRow
from tests.server.entitled import entitled
from tests.server.fits import noted_fits


def test_many_who_ask_are_told_the_same(finished: tuple[FastAPI, Campaign]) -> None:
    app, campaign = finished
    campaigns: CampaignCache = app.state.campaigns
    event = campaigns.last_event(campaign.id)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(campaigns.recommendation, [campaign.id] * 8, [event] * 8))
    first, *others = (None if each is None else each.standing for each in answers)
    assert first is not None
    assert all(other is first for other in others)
    assert first.sentence.startswith("Best of its space with ")
    assert first.neighbours


def test_a_page_is_answered_from_what_the_runner_wrote_and_is_the_same_without_it(
    finished: tuple[FastAPI, Campaign],
) -> None:
    app, campaign = finished
    store: Store = app.state.store
    about = f"/api/v1/campaigns/{campaign.id}"

    def answers() -> list[str]:
        """Of a service that has just been started."""
        with entitled(create_app(app.state.settings)) as client:
            page = client.get(f"/campaigns/{campaign.id}")
            assert page.status_code == 200
            paths = (about, f"{about}/recommendation", f"{about}/explanation")
            return [client.get(path).text for path in paths]

    with noted_fits(store) as fits:
        written = answers()
        assert fits == []
        with store.transaction() as session:
            session.execute(delete(OutcomeRow))
        assert answers() == written
        assert fits == [0], "the page and all answers about a campaign rest on one fit"
        assert answers() == written
        assert len(fits) == 1
