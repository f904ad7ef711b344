"""Answers about campaigns that the progress of a trial leaves as they are."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from server.api.kept import Kept
from server.api.kept_campaigns import KeptCampaigns
from server.figures.source import FigureSource

T = TypeVar("T")


class KeptByTrials(Generic[T]):
    """What follows from a campaign and the ends of its trials: found by the campaign's last event,
    and made anew only where that was more than the progress of a trial, as most events are.

    Args:
        most: answers that are kept.
    """

    def __init__(self, campaigns: KeptCampaigns, most: int) -> None:
        self._campaigns = campaigns
        self._by_event: Kept[T] = Kept(most)
        self._by_trials: Kept[T] = Kept(most)

    def of(
        self,
        campaign_id: int,
        event: int,
        make: Callable[[FigureSource], T],
        *,
        besides: Hashable = None,
    ) -> T:
        """Return what holds after an event, a campaign's last.

        Args:
            besides: what else the answer follows from.

        Raises:
            NotFound: there is no such campaign.
        """

        about = campaign_id, besides

        def found() -> T:
            source = self._campaigns.source(campaign_id, event)
            return self._by_trials.of(about, lambda: make(source), version=source.key)

        return self._by_event.of(about, found, version=event)

    def ready(self, campaign_id: int, event: int) -> T | None:
        """Return what holds after an event where it need not be made; raises NotFound."""
        about = campaign_id, None
        known = self._by_event.ready(about, version=event)
        if known is not None:
            return known
        source = self._campaigns.source(campaign_id, event)
        return self._by_trials.ready(about, version=source.key)
