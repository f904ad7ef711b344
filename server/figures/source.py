"""What figures of a campaign are made of: its trials, and what is believed after them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from autotune.calibration import Calibration
from autotune.explanation import BelievedRates
from autotune.recommendation import all_contenders, recommend
from autotune.recommendation.ranking import Contender
from autotune.resolution import machine_of, transformer_of
from autotune.schemas import Campaign, EarlierObservation, Recommendation, Trial, TrialState
from autotune.search import CampaignBelief, SearchTrial, ended_of, search_trials
from autotune.search.trial import merged
from search_spaces.machine import Machine
from search_spaces.program import ProgramCapabilities
from search_spaces.space import SearchSpace
from search_spaces.transformer import Transformer
from server.campaign.start import (
    belief_of_campaign,
    program_of_campaign,
    space_of_campaign,
    versions_of,
)

MAY_FIT = 0.1
"""Probability of fitting from which on a strategy counts among those that are compared."""


def outcome_key(campaign: Campaign, trials: Sequence[Trial]) -> bytes:
    """Return what is equal where trials differ in their progress alone, of which no figure and no
    recommendation tells."""
    told = [campaign.model_dump_json(exclude={"waiting", "reason"})]
    told += [f"{trial.token} {trial.state} {trial.finished_at}" for trial in trials]
    return hashlib.sha256("\n".join(told).encode()).digest()


@dataclass(frozen=True, kw_only=True, eq=False)
class SpaceBelief:
    """What is believed after a campaign's trials; what costs time is worked out where it is first
    asked for, under `lock` where several may ask.

    Attributes:
        known: what the trials have shown.
        versions: of the software that they ran.
        profile: of the campaign's cluster, as it keeps it.
        kept: what earlier trials had shown when it began.
    """

    campaign: Campaign
    known: tuple[SearchTrial, ...]
    versions: Mapping[str, str]
    profile: Mapping[str, Any] | None = None
    kept: Sequence[EarlierObservation] = ()
    lock: threading.RLock = field(default_factory=threading.RLock)

    @classmethod
    def of(
        cls,
        campaign: Campaign,
        trials: Sequence[Trial],
        *,
        profile: Mapping[str, Any] | None = None,
        kept: Sequence[EarlierObservation] = (),
    ) -> SpaceBelief:
        return cls(
            campaign=campaign,
            known=tuple(merged(search_trials(ended_of(trials)))),
            versions=versions_of(trials, kept=kept),
            profile=profile,
            kept=kept,
        )

    @cached_property
    def transformer(self) -> Transformer:
        return transformer_of(self.campaign.model)

    @cached_property
    def machine(self) -> Machine:
        return machine_of(self.campaign.machine)

    @cached_property
    def space(self) -> SearchSpace:
        """What it searches; raises InvalidInput(s) for a campaign of an earlier version that
        allowed more."""
        return space_of_campaign(
            self.campaign.request, self.transformer, self.machine, profile=self.profile
        )

    @cached_property
    def program(self) -> ProgramCapabilities:
        """Of what runs its trials."""
        request = self.campaign.request
        return program_of_campaign(request, profile=self.profile)

    @cached_property
    def of_campaign(self) -> CampaignBelief:
        """What the campaign believes of its machine."""
        return belief_of_campaign(
            self.campaign, versions=self.versions, profile=self.profile, kept=self.kept
        )

    @cached_property
    def calibration(self) -> Calibration:
        """Fitted to the campaign's trials and to what it started from, as its search is."""
        return self.of_campaign.calibration(self.known)

    @cached_property
    def rates(self) -> BelievedRates:
        """Of the strategies of the space that may fit: of others the rate decides nothing."""
        request = self.campaign.request
        return BelievedRates.of(
            self.space,
            self.calibration,
            objective=request.objective,
            least_fit_probability=MAY_FIT,
            headroom_gib=request.min_headroom_gib,
            seed=request.seed,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class FigureSource:
    """A campaign with all its trials, and what is believed after them."""

    campaign: Campaign
    trials: Sequence[Trial]
    belief: SpaceBelief

    @cached_property
    def key(self) -> bytes:
        return outcome_key(self.campaign, self.trials)

    def head(self, *, title: str, caption: str) -> dict[str, Any]:
        """Return the fields that every figure has, but for its table."""
        return {
            "campaign_id": self.campaign.id,
            "title": title,
            "caption": caption,
            "simulated": self.campaign.simulated,
        }

    @cached_property
    def measured(self) -> list[Trial]:
        """Trials with figures."""
        return [t for t in self.trials if t.state is TrialState.OK and t.metrics is not None]

    @cached_property
    def ended(self) -> list[Trial]:
        """Trials that do not run any more."""
        return ended_of(self.trials)

    @cached_property
    def pending(self) -> list[Trial]:
        """Trials that have not ended, those that run before those that wait."""
        pending = [trial for trial in self.trials if trial.state is TrialState.PENDING]
        return sorted(pending, key=lambda trial: (trial.phase != "running", trial.number))

    @cached_property
    def contenders(self) -> list[Contender]:
        """The layouts that have been measured, or that are projected, the best first."""
        return all_contenders(self.campaign, self.trials, belief=self.belief.of_campaign)

    @cached_property
    def recommendation(self) -> Recommendation | None:
        """The recommendation of the ended trials."""
        return recommend(self.campaign, self.ended, belief=self.belief.of_campaign)
