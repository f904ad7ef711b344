"""What follows from a campaign's trials is made anew by an end of one, and by no progress."""

from __future__ import annotations

from server.api.kept_by_trials import KeptByTrials
from server.api.kept_campaigns import KeptCampaigns
from server.figures.source import FigureSource
from server.settings import Settings
from tests.server.dashboard.campaigns import Campaigns


def test_only_an_end_is_news(settings: Settings) -> None:
    made = Campaigns(settings)
    campaign = made.running(ok=2)
    campaigns = KeptCampaigns(made.store)
    kept: KeptByTrials[int] = KeptByTrials(campaigns, 10)
    asked: list[int] = []

    def make(source: FigureSource) -> int:
        asked.append(len(source.trials))
        return len(source.measured)

    def now() -> int:
        return kept.of(campaign.id, campaigns.last_event(campaign.id), make)

    trials = made.start(campaign, made.strategies(campaign, 3, fitting=True)[2:])
    before = campaigns.last_event(campaign.id)
    assert kept.ready(campaign.id, before) is None
    assert now() == 2
    made.stand(trials, phase="running", host="node1")
    event = campaigns.last_event(campaign.id)
    assert event > before
    assert kept.ready(campaign.id, event) == 2
    assert now() == 2
    assert asked == [3]
    made.finish(campaign, trials)
    assert kept.ready(campaign.id, campaigns.last_event(campaign.id)) is None
    assert now() == 3
    assert asked == [3, 3]
    made.store.close()
