"""The starting point of a campaign's search: earlier trials on the same machine with the same
program."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from autotune.calibration import Observation, machine_figures, observations_of
from autotune.calibration.history import forecast_errors, observation_of, weight_of
from autotune.calibration.power import PowerScale
from autotune.cost_model.parameters import Parameters
from autotune.schemas.calibrations import EarlierObservation
from autotune.schemas.campaigns import Campaign, StartWorth
from autotune.schemas.choices import TrialState
from autotune.schemas.requests import CampaignCreate
from autotune.schemas.resolution import campaign_space
from autotune.schemas.trials import Trial
from autotune.search import CampaignBelief
from evaluators.adapter.knobs import knobs_of_bundled
from evaluators.cluster import profile_from_dict
from evaluators.program.support import capabilities_of
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
    """Return the space of a campaign; raises InvalidInputs.

    Args:
        profile: of its cluster, as stored with the campaign.
    """
    program = program_of_campaign(request, profile=profile)
    return campaign_space(request, transformer, machine, program=program)


def program_of_campaign(
    request: CampaignCreate, *, profile: Mapping[str, Any] | None
) -> ProgramCapabilities:
    cluster = profile_from_dict(profile, source="campaign") if profile else None
    return capabilities_of(request.evaluator, cluster)


@dataclass(frozen=True, kw_only=True, eq=False)
class SearchStart:
    """The starting point of a campaign, as stored in its rows.

    Attributes:
        alone: the campaign's belief without earlier trials.
        earlier: observations of the earlier trials at the campaign's start.
    """

    alone: CampaignBelief
    earlier: Sequence[EarlierObservation]

    def belief(self, versions: Mapping[str, str]) -> CampaignBelief:
        return (
            replace(self.alone, earlier=self.observations(versions)) if self.earlier else self.alone
        )

    @cached_property
    def first_belief(self) -> CampaignBelief:
        return self.belief(self.versions([]))

    def versions(self, trials: Sequence[Trial]) -> Mapping[str, str]:
        return versions_of(trials, earlier=self.earlier)

    def observations(self, versions: Mapping[str, str]) -> tuple[Observation, ...]:
        """Return the earlier observations, weighted by how close their software versions are to
        these."""
        return tuple(
            replace(
                observation_of(shape),
                weight=weight_of(shape.versions, among=versions, age_days=shape.age_days),
            )
            for shape in self.earlier
        )

    def worth(self, trials: Sequence[Trial]) -> StartWorth | None:
        """Return how much the earlier trials improved predictions; None if there were none, or no
        trial has been timed."""
        measured = observations_of(self.alone.transformer, trials, machine=self.alone.machine)
        if not self.earlier:
            return None
        first, alone = self.first_belief.prior(), self.alone.prior()
        errors = forecast_errors(first, measured, without=alone)
        if errors is None:
            return None
        return StartWorth(
            trials=errors.trials, error_without=errors.without, error_with=errors.given
        )

    def power_factor(self, trials: Sequence[Trial]) -> float:
        """Return the ratio of GPU power to the machine's power figures, from the campaign's and the
        earlier trials that sampled it; 1 if none did.

        Steps are split into parts by default constants, on which a factor common to all parts
        hardly depends.
        """
        earlier = self.observations(self.versions(trials))
        transformer, machine = self.alone.transformer, self.alone.machine
        known = [*earlier, *observations_of(transformer, trials, machine=machine)]
        return PowerScale.of(machine, known, Parameters.default(machine)).factor


def versions_of(
    trials: Sequence[Trial], *, earlier: Sequence[EarlierObservation]
) -> Mapping[str, str]:
    """Return the versions of the campaign's first trial that reported them; before that, of the
    newest earlier trial."""
    own = (trial.versions for trial in trials if trial.state is TrialState.OK)
    newest = sorted(earlier, key=lambda observation: observation.age_days)
    known = (*own, *(observation.versions for observation in newest))
    return next((versions for versions in known if versions), {})


def belief_of_campaign(
    campaign: Campaign,
    *,
    versions: Mapping[str, str],
    profile: Mapping[str, Any] | None,
    earlier: Sequence[EarlierObservation],
) -> CampaignBelief:
    """Return a campaign's belief about its machine.

    Args:
        versions: software versions of its trials.
        profile: of its cluster, as stored with the campaign.
        earlier: observations of earlier trials at its start.
    """
    transformer, machine = campaign.model, campaign.machine
    space = space_of_campaign(campaign.request, transformer, machine, profile=profile)
    return SearchStart(alone=CampaignBelief.over(space), earlier=earlier).belief(versions)


def machine_digest(machine: Machine) -> str:
    figures = json.dumps(machine_figures(machine), sort_keys=True)
    return hashlib.sha256(figures.encode()).hexdigest()


def program_of(request: CampaignCreate, profile: Mapping[str, Any] | None) -> str:
    """Return the name of what a campaign's trials train with, without its version.

    Simulated trials of another seed ran on another machine.

    Args:
        profile: of the cluster, or of the adapter, as stored with the campaign.
    """
    if request.evaluator != "simulated":
        return trainer_of(profile)
    simulated = f"simulated {request.seed}"
    return f"{simulated}+{_digest(trainer_of(profile))}" if profile else simulated


def trainer_of(profile: Mapping[str, Any] | None) -> str:
    """Return the name of the trainer of trials that are not simulated; the bundled one without a
    profile. It includes settings that strategies omit: after a trainer learns to overlap its
    communication, its earlier trials are no longer comparable."""
    if adapter := (profile or {}).get("adapter"):
        program, knobs = f"adapter {adapter['name']}", adapter.get("knobs", {})
        own = [each for each in adapter.get("dimensions", ()) if not each.get("searched", True)]
    else:
        program, knobs = "trainer", {n: asdict(k) for n, k in knobs_of_bundled().items()}
        own = [{"name": name, **knob} for name, knob in knobs.items()]
    apart = (e for e in own if knobs.get(e["name"], {}).get("changed_default", True))
    usual = {each["name"]: each["values"][0] for each in apart}
    return f"{program}+{_digest(usual)}" if usual else program


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:5]


def adapter_version(profile: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the name and digest of a campaign's adapter, as an entry of versions; empty without
    one."""
    if not profile or not profile.get("adapter"):
        return {}
    adapter = profile_from_dict(profile, source="the campaign's profile").adapter
    return {"adapter": adapter.label} if adapter else {}
