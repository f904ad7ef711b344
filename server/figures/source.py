"""The data of a campaign's figures: its trials and its calibration."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from autotune.calibration import Calibration
from autotune.explanation.rates import BelievedRates
from autotune.knobs.phase import without_knobs
from autotune.recommendation.projected import all_contenders
from autotune.recommendation.ranking import Contender
from autotune.recommendation.recommendation import recommend
from autotune.schemas.calibrations import EarlierObservation
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import TrialState
from autotune.schemas.recommendations import Recommendation
from autotune.schemas.trials import Trial
from autotune.search import CampaignBelief, SearchTrial, ended_of, search_trials
from autotune.search.trial import merged
from search_spaces.program import ProgramCapabilities
from search_spaces.space import SearchSpace
from server.campaign.knobs import knobs_of_campaign
from server.campaign.start import (
    belief_of_campaign,
    program_of_campaign,
    space_of_campaign,
    versions_of,
)

MAY_FIT = 0.1
"""Minimum probability of fitting of the strategies that are compared."""


def outcome_key(campaign: Campaign, trials: Sequence[Trial]) -> bytes:
    lines = [campaign.model_dump_json(exclude={"waiting", "reason"})]
    lines += [f"{trial.token} {trial.state} {trial.finished_at}" for trial in trials]
    return hashlib.sha256("\n".join(lines).encode()).digest()


@dataclass(frozen=True, kw_only=True, eq=False)
class SpaceBelief:
    """The calibration of a campaign after its trials, and its search space.

    Expensive properties are computed on first use; hold `lock` if several threads may use them.

    Attributes:
        known: results of the trials.
        versions: of the trials' software.
        profile: the campaign's stored cluster profile.
        earlier: observations of earlier trials that the campaign started from.
    """

    campaign: Campaign
    known: tuple[SearchTrial, ...]
    versions: Mapping[str, str]
    profile: Mapping[str, Any] | None = None
    earlier: Sequence[EarlierObservation] = ()
    lock: threading.RLock = field(default_factory=threading.RLock)

    @classmethod
    def of(
        cls,
        campaign: Campaign,
        trials: Sequence[Trial],
        *,
        profile: Mapping[str, Any] | None = None,
        earlier: Sequence[EarlierObservation] = (),
    ) -> SpaceBelief:
        return cls(
            campaign=campaign,
            known=tuple(merged(search_trials(ended_of(trials)))),
            versions=versions_of(trials, earlier=earlier),
            profile=profile,
            earlier=earlier,
        )

    @cached_property
    def space(self) -> SearchSpace:
        return space_of_campaign(
            self.campaign.request, self.campaign.model, self.campaign.machine, profile=self.profile
        )

    @cached_property
    def program(self) -> ProgramCapabilities:
        request = self.campaign.request
        return program_of_campaign(request, profile=self.profile)

    @cached_property
    def of_campaign(self) -> CampaignBelief:
        return belief_of_campaign(
            self.campaign, versions=self.versions, profile=self.profile, earlier=self.earlier
        )

    @cached_property
    def calibration(self) -> Calibration:
        return self.of_campaign.calibration(self.known)

    @cached_property
    def rates(self) -> BelievedRates:
        """Predicted rates of the strategies of the space that may fit."""
        request = self.campaign.request
        return BelievedRates.of(
            self.space,
            self.calibration,
            objective=request.objective,
            least_fit_probability=MAY_FIT,
            headroom_gib=request.min_headroom_gib or 0.0,
            seed=request.seed,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class FigureSource:
    """A campaign with its trials and its calibration."""

    campaign: Campaign
    trials: Sequence[Trial]
    belief: SpaceBelief

    @cached_property
    def key(self) -> bytes:
        return outcome_key(self.campaign, self.trials)

    @cached_property
    def measured(self) -> list[Trial]:
        return [t for t in self.layouts if t.state is TrialState.OK and t.metrics is not None]

    @cached_property
    def layouts(self) -> list[Trial]:
        """The trials of layouts: all but knobs'."""
        return without_knobs(self.trials)

    @cached_property
    def ended(self) -> list[Trial]:
        return ended_of(self.trials)

    @cached_property
    def pending(self) -> list[Trial]:
        pending = [trial for trial in self.trials if trial.state is TrialState.PENDING]
        return sorted(pending, key=lambda trial: (trial.phase != "running", trial.number))

    @cached_property
    def contenders(self) -> list[Contender]:
        return all_contenders(self.campaign, self.trials, belief=self.belief.of_campaign)

    @cached_property
    def recommendation(self) -> Recommendation | None:
        knobs = knobs_of_campaign(self.campaign.request, self.belief.profile)
        belief = self.belief.of_campaign
        return recommend(self.campaign, self.ended, belief=belief, knobs=knobs)
