"""A figure is made anew when a trial ends, and not for the progress of one."""

from __future__ import annotations

from server.api.campaign_cache import CampaignCache
from server.cache import Cache
from server.figures.figure import DrawnFigure
from server.figures.kinds import FigureOptions
from server.settings import Settings
from tests.server.dashboard.campaigns import Campaigns


def test_only_an_end_makes_a_figure_anew(sqlite_settings: Settings) -> None:
    made = Campaigns(sqlite_settings)
    campaign = made.running(ok=2)
    campaigns = CampaignCache(made.store, Cache())

    def now() -> DrawnFigure:
        event = campaigns.last_event(campaign.id)
        return campaigns.figure(campaign.id, event, "trajectory", FigureOptions())

    belief = campaigns.latest(campaign.id).belief
    trials = made.start(campaign, made.strategies(campaign, 3, fitting=True)[2:])
    before, first = campaigns.latest(campaign.id), now()
    assert before.belief is belief, "a start teaches nothing"
    made.stand(trials, phase="running", host="node1")
    after = campaigns.latest(campaign.id)
    assert after is not before
    assert after.pending[0].host == "node1"
    assert after.ended[0] is before.ended[0], "its row was not read again"
    assert after.belief is belief
    assert now() is first
    made.finish(campaign, trials)
    assert now() is not first
    latest = campaigns.latest(campaign.id)
    assert len(latest.measured) == 3
    assert latest.belief is not belief
    made.store.close()
