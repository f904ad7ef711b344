"""A campaign and its trials as their rows say, kept until an event says that they changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from autotune.schemas import Campaign, Trial
from server.store import Store
from server.store.progress import pending_trials
from server.store.queries import all_trials, get_campaign, profile_of


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The rows as they stood at event `newest`, or a little later."""

    newest: int
    campaign: Campaign
    profile: Mapping[str, Any] | None
    pending: Sequence[Trial]
    store: Store

    @classmethod
    def read(cls, store: Store, campaign_id: int, *, newest: int) -> Snapshot:
        """Raises NotFound."""
        with store.session() as session:
            campaign = get_campaign(session, campaign_id)
            profile = profile_of(session, campaign_id)
            pending = pending_trials(session, campaign_id)
        return cls(newest=newest, campaign=campaign, profile=profile, pending=pending, store=store)

    @cached_property
    def trials(self) -> list[Trial]:
        """All of them, read when they are first asked for."""
        with self.store.session() as session:
            return all_trials(session, self.campaign.id)
