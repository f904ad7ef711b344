"""Notices of campaigns that ended or paused, sent by Apprise to the operator's services."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import CampaignState
from search_spaces.errors import InvalidInput
from server.logs import withhold
from server.periodic import PeriodicTask
from server.store import NotFound, Store
from server.store.campaigns import RESTING, get_campaign, states_of
from server.store.events import last_event_id, newest_since

if TYPE_CHECKING:
    from apprise import Apprise

NOTICED = {*RESTING, CampaignState.PAUSED} - {CampaignState.IMPORTED}
log = structlog.get_logger(__name__)


class CampaignNotices(PeriodicTask):
    """Sends a notice of each campaign that ends or pauses, from `start` to `stop`, in a thread.

    `urls` are Apprise URLs, separated by spaces or lines, and `url` is the service's address.
    Raises InvalidInput if Apprise cannot read one of them.
    """

    def __init__(self, store: Store, urls: str, *, url: str, every_s: float = 2.0) -> None:
        self._store, self._url, self._services = store, url, _services(urls)
        with store.session() as session:
            self._last, self._states = last_event_id(session), states_of(session)
        super().__init__("notices", self.send_new, every_s=every_s)

    def send_new(self) -> None:
        with self._store.session() as session:
            newest = newest_since(session, self._last)
            states = states_of(session, newest)
            changed = states.items() - self._states.items()
            campaigns = []
            for campaign_id, _ in sorted(changed):
                with suppress(NotFound):  # deleted meanwhile
                    campaigns.append(get_campaign(session, campaign_id))
        self._last = max(newest.values(), default=self._last)
        self._states |= states
        for campaign in campaigns:
            # The services may have readers who must not see private campaigns.
            if campaign.state in NOTICED and not (campaign.private and campaign.owner):
                self._send(campaign)

    def _send(self, campaign: Campaign) -> None:
        lines = [f"Reason: {campaign.reason}"] if campaign.reason else []
        lines.append(f"Trials: {campaign.trials}, node-hours: {campaign.node_hours:.2f}")
        if campaign.best_strategy is not None:
            lines.append(f"Recommended: {campaign.best_strategy.short()}")
        if campaign.simulated:
            lines.append("Its trials are simulated: figures are predictions, not measurements.")
        body = "\n".join([*lines, f"{self._url.rstrip('/')}/campaigns/{campaign.id}"])
        title = f"campaign {campaign.id} ({campaign.name}) is now {campaign.state}"
        if self._services.notify(title=title, body=body):
            log.info("notice_sent", campaign=campaign.id)
        else:  # Apprise has logged why
            log.warning("notice_failed", campaign=campaign.id)


def _services(urls: str) -> Apprise:
    from apprise import Apprise, AppriseAsset  # with its imports, only where it is used

    services = Apprise(asset=AppriseAsset(app_id="autotune"))
    for number, url in enumerate(urls.split(), start=1):
        withhold(url)
        if not services.add(url):
            reason = f"Apprise cannot read URL {number}"
            raise InvalidInput("notice_urls", None, reason, valid="such as mailto://user:pass@host")
    return services
