"""What a campaign's search starts from: earlier trials of its machine and program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from autotune.calibration import Observation, observations_of
from autotune.calibration.document import observation_of
from autotune.calibration.history import forecast_errors, weight_of
from autotune.calibration.power import PowerScale
from autotune.cost_model.parameters import Parameters
from autotune.prediction import study_space
from autotune.resolution import campaign_space, machine_of, transformer_of
from autotune.schemas import (
    Campaign,
    CampaignCreate,
    EarlierObservation,
    StartWorth,
    Trial,
    TrialState,
)
from autotune.search import CampaignBelief
from evaluators.cluster import profile_from_dict
from evaluators.program.support import capabilities_of
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.machine import Machine
from search_spaces.program import ProgramCapabilities
from search_spaces.space import SearchSpace
from search_spaces.transformer import Transformer


def space_of_campaign(
    request: CampaignCreate,
    transformer: Transformer,
    machine: Machine,
    *,
    profile: Mapping[str, Any] | None,
) -> SearchSpace:
    """Return what a campaign searches, or measures for a study; raises InvalidInputs.

    Args:
        profile: of its cluster, as the campaign keeps it.
    """
    program = program_of_campaign(request, profile=profile)
    if request.study is not None:
        return study_space(request, transformer, machine, program=program)
    return campaign_space(request, transformer, machine, program=program)


def program_of_campaign(
    request: CampaignCreate, *, profile: Mapping[str, Any] | None
) -> ProgramCapabilities:
    """Return what can be done by the program that runs a campaign's trials."""
    kept = profile_from_dict(profile, source="campaign") if profile else None
    return capabilities_of(request.evaluator, kept)


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchStart:
    """What a campaign has started from, as its rows keep it.

    Attributes:
        alone: what the campaign believes without the earlier trials.
        kept: what those had shown when it began.
    """

    alone: CampaignBelief
    kept: Sequence[EarlierObservation]

    def belief(self, versions: Mapping[str, str]) -> CampaignBelief:
        """Return what the campaign believes, its own trials having run with these versions."""
        return replace(self.alone, earlier=self.observations(versions)) if self.kept else self.alone

    @cached_property
    def first_belief(self) -> CampaignBelief:
        """What it believes before its first trial, when its versions are not known yet."""
        return self.belief(self.versions([]))

    def versions(self, trials: Sequence[Trial]) -> Mapping[str, str]:
        """Return the versions that the campaign's trials run with."""
        return versions_of(trials, kept=self.kept)

    def observations(self, versions: Mapping[str, str]) -> tuple[Observation, ...]:
        """Return what was kept, each with what it counts beside trials of these versions."""
        return tuple(
            replace(
                observation_of(shape),
                weight=weight_of(shape.versions, among=versions, age_days=shape.age_days),
            )
            for shape in self.kept
        )

    def worth(self, trials: Sequence[Trial]) -> StartWorth | None:
        """Return what it has been worth; None where it was nothing, or no trial has been timed."""
        measured = observations_of(self.alone.transformer, trials, machine=self.alone.machine)
        if not self.kept:
            return None
        first, alone = self.first_belief.prior(), self.alone.prior()
        errors = forecast_errors(first, measured, without=alone)
        if errors is None:
            return None
        return StartWorth(
            trials=errors.trials, error_without=errors.without, error_with=errors.given
        )

    def power_factor(self, trials: Sequence[Trial]) -> float:
        """Return what GPUs draw against the machine's power figures, by the trials that sampled it,
        these of the campaign and the earlier ones; 1 where none did.

        Constants that are generally known cut their steps into parts: a factor on all of the power
        hardly depends on them.
        """
        earlier = self.observations(self.versions(trials))
        transformer, machine = self.alone.transformer, self.alone.machine
        known = [*earlier, *observations_of(transformer, trials, machine=machine)]
        return PowerScale.of(machine, known, Parameters.default(machine)).factor


def versions_of(
    trials: Sequence[Trial], *, kept: Sequence[EarlierObservation]
) -> Mapping[str, str]:
    """Return the versions of a campaign's first trial that told them, until then of the newest
    earlier one."""
    own = (trial.versions for trial in trials if trial.state is TrialState.OK)
    newest = sorted(kept, key=lambda observation: observation.age_days)
    known = (*own, *(observation.versions for observation in newest))
    return next((versions for versions in known if versions), {})


def belief_of_campaign(
    campaign: Campaign,
    *,
    versions: Mapping[str, str],
    profile: Mapping[str, Any] | None,
    kept: Sequence[EarlierObservation],
) -> CampaignBelief:
    """Return what a campaign believes of its machine.

    Args:
        versions: that its trials run with.
        profile: of its cluster, as the campaign keeps it.
        kept: what earlier trials had shown when it began.
    """
    transformer, machine = transformer_of(campaign.model), machine_of(campaign.machine)
    try:
        space = space_of_campaign(campaign.request, transformer, machine, profile=profile)
        alone = CampaignBelief.over(space)
    except (InvalidInput, InvalidInputs):  # of an earlier version, which allowed more
        program = program_of_campaign(campaign.request, profile=profile)
        alone = CampaignBelief(
            machine=machine,
            transformer=transformer,
            tuning=program.tuning,
            states=program.states,
        )
    return SearchStart(alone=alone, kept=kept).belief(versions)
