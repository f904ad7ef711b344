"""A campaign's rows as a runner sees them, reread when something has happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from autotune.schemas.campaigns import Campaign
from autotune.schemas.trials import Trial
from server.store import Store
from server.store.campaigns import get_campaign, profile_of
from server.store.trials import all_trials, pending_trials


@dataclass(frozen=True, kw_only=True)
class CampaignSnapshot:
    """A campaign and its trials at event `newest`, or slightly later.

    Attributes:
        known: its trials at an earlier event, as far as they have been read.
    """

    newest: int
    campaign: Campaign
    profile: Mapping[str, Any] | None
    pending: Sequence[Trial]
    store: Store
    known: Sequence[Trial] = ()

    @classmethod
    def read(
        cls, store: Store, campaign_id: int, *, newest: int, before: CampaignSnapshot | None = None
    ) -> CampaignSnapshot:
        """Read the campaign and its pending trials; raises NotFound.

        Args:
            before: an earlier snapshot, whose ended trials are not read again.
        """
        with store.session() as session:
            return cls(
                newest=newest,
                campaign=get_campaign(session, campaign_id),
                profile=profile_of(session, campaign_id),
                pending=pending_trials(session, campaign_id),
                store=store,
                known=before.known_trials if before else (),
            )

    @cached_property
    def trials(self) -> list[Trial]:
        """Return all trials, read on first use."""
        with self.store.session() as session:
            return all_trials(session, self.campaign.id, known=self.known)

    @property
    def known_trials(self) -> Sequence[Trial]:
        """Return the trials that have been read so far."""
        return self.trials if "trials" in vars(self) else self.known
