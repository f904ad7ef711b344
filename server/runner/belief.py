"""A campaign's rows as a runner sees them, and the belief about its layouts that follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from autotune.baseline import baseline_of
from autotune.calibration import Calibration
from autotune.schemas.campaigns import Campaign, StartWorth
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial
from autotune.search import CampaignBelief, Proposer, TrialCost, search_trials
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy
from server.campaign.results import Workload
from server.campaign.start import SearchStart, space_of_campaign
from server.campaign.worth import proposer_of, trial_cost
from server.store import Store
from server.store.campaigns import get_campaign, profile_of
from server.store.history import earlier_observations
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
        with self.store.session() as session:
            return all_trials(session, self.campaign.id, known=self.known)

    @property
    def known_trials(self) -> Sequence[Trial]:
        return self.trials if "trials" in vars(self) else self.known


class SearchBelief:
    """Derived from the campaign's rows, and can be recomputed from them.

    Args:
        snapshot: returns the campaign's current rows.
    """

    def __init__(self, store: Store, snapshot: Callable[[], CampaignSnapshot]) -> None:
        self._store = store
        self._snapshot = snapshot
        self._believed: tuple[Mapping[str, str], CampaignBelief] | None = None
        self._made: tuple[TrialCost, Proposer] | None = None

    @cached_property
    def workload(self) -> Workload:
        return Workload.of(self._snapshot().campaign)

    @cached_property
    def space(self) -> SearchSpace:
        request = self._snapshot().campaign.request
        transformer, machine = self.workload.transformer, self.workload.machine
        return space_of_campaign(request, transformer, machine, profile=self._snapshot().profile)

    @cached_property
    def baseline(self) -> Strategy | None:
        return baseline_of(self._snapshot().campaign.request, self.space)

    @property
    def power_factor(self) -> float:
        """Return the ratio of GPU power to the machine's power figures, from the trials that
        sampled it; 1 if none did."""
        return self._search_start.power_factor(self._snapshot().trials)

    def proposer(self) -> Proposer:
        """Return the proposer, which includes the earlier trials. Their weights follow from the
        versions of the campaign's own trials, and the cost of a trial from their measurements."""
        campaign, trials = self._snapshot().campaign, self._snapshot().trials
        belief, cost = self._belief(trials), trial_cost(campaign, trials)
        if self._made is None or self._made[1].belief is not belief or self._made[0] != cost:
            self._made = cost, proposer_of(campaign, self.space, belief=belief, cost=cost)
        return self._made[1]

    def _belief(self, trials: Sequence[Trial]) -> CampaignBelief:
        versions = self._search_start.versions(trials)
        if self._believed is None or self._believed[0] != versions:
            self._believed = versions, self._search_start.belief(versions)
        return self._believed[1]

    def calibration_before(self, trial: Trial) -> Calibration:
        trials = self._snapshot().trials
        ended = [t for t in trials if t.finished_at and t.finished_at <= trial.created_at]
        return self.proposer().calibration(search_trials(ended))

    def worth_of_start(self, *, more_than: float = 0) -> StartWorth | None:
        """Return how much the earlier trials improved predictions; None if there were none.

        Args:
            more_than: return None with at most this many timed trials.
        """
        if not self._snapshot().campaign.started_from:
            return None
        timed = [trial for trial in self._snapshot().trials if trial.state is TrialState.OK]
        return self._search_start.worth(timed) if len(timed) > more_than else None

    @cached_property
    def _search_start(self) -> SearchStart:
        with self._store.session() as session:
            earlier = earlier_observations(session, self._snapshot().campaign.id)
        return SearchStart(alone=CampaignBelief.over(self.space), earlier=earlier)
