"""Checks whether a campaign can run here, and reports all problems at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import structlog

from autotune.baseline import baseline_of
from autotune.prediction.campaign import check_campaign
from autotune.schemas.requests import CampaignCreate
from evaluators.adapter.adapter import Adapter
from evaluators.adapter.rendering import StartPlan, other_model
from evaluators.cluster import ClusterProfile
from evaluators.program.support import OTHER_SPACE
from evaluators.ray.connection import RayUnavailable
from evaluators.slurm.commands import SlurmUnavailable
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace
from server.campaign.knobs import check_knobs
from server.obstacles import obstacles, quickly
from server.programs import (
    chosen_profile,
    demand_known_ray,
    program_of,
    reasons_not_to_run,
)
from server.settings import Settings

T = TypeVar("T")
OTHER_BASELINE = "a layout that the program of the trials can run, or none"
PATIENCE_S = 10.0
"""Time limit for an answer of the cluster while a user waits."""
log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Admitted:
    """An accepted campaign: its request, its space and, if it runs on a
    cluster, the cluster's profile."""

    request: CampaignCreate
    space: SearchSpace
    profile: ClusterProfile | None


def admit(request: CampaignCreate, settings: Settings, *, as_admin: bool = False) -> Admitted:
    """Return the campaign's space and profile.

    Args:
        as_admin: whether the caller is an admin.

    Raises:
        InvalidInputs: everything that keeps its trials from running.
    """
    problems: list[InvalidInput] = []
    _collect(problems, lambda: demand_known_ray(request, settings))
    if problems:
        raise InvalidInputs(problems)
    profile = _collect(problems, lambda: chosen_profile(request, settings, as_admin=as_admin))
    if not problems:
        _collect(problems, lambda: check_knobs(request.knobs, request, profile))
    program = program_of(request, profile)
    space = _collect(problems, lambda: check_campaign(request, program=program))
    if space is not None:
        problems += _unsuitable(request, space, profile)
    on_cluster = request.evaluator in {"slurm", "ray"}
    if space and profile and on_cluster and profile.machine in {"", space.machine.name}:
        try:
            problems += obstacles(request, quickly(profile, limit_s=PATIENCE_S), space)
        except (SlurmUnavailable, RayUnavailable) as error:  # the runner asks again
            log.info("cluster_unavailable", profile=profile.name, reason=str(error))
    if problems or space is None:
        raise InvalidInputs(problems)
    return Admitted(request=request, space=space, profile=profile)


def _collect(problems: list[InvalidInput], find: Callable[[], T]) -> T | None:
    try:
        return find()
    except InvalidInput as problem:
        problems.append(problem)
    except InvalidInputs as refusal:
        problems.extend(refusal.problems)
    return None


def _unsuitable(
    request: CampaignCreate, space: SearchSpace, profile: ClusterProfile | None
) -> Iterator[InvalidInput]:
    machine = space.machine.name
    if profile is not None and profile.machine not in {"", machine}:
        reason = f"the profile {profile.name!r} is for {profile.machine}"
        yield InvalidInput("machine", machine, reason, valid=profile.machine)
    if profile and profile.adapter and request.evaluator != "simulated":
        yield from _other_model(profile.adapter, space)
    for reason in reasons_not_to_run(request, profile, space.lattice()):
        yield InvalidInput("space", request.evaluator, reason, valid=OTHER_SPACE)
    yield from _unsuitable_baseline(request, space, profile)


def _other_model(adapter: Adapter, space: SearchSpace) -> Iterator[InvalidInput]:
    lattice = space.lattice()
    if not len(lattice):
        return
    plan = StartPlan(
        transformer=space.transformer,
        machine=space.machine,
        strategy=lattice.strategy(0),
        iterations=1,
    )
    if other := other_model(adapter, plan):
        places = ", ".join(other.places)
        reason = (
            f"its trials would not train {space.transformer.name}, but the model that the adapter "
            f"configures with {places}"
        )
        valid = f"a profile with {places} in [trainer.set], or a copy of the adapter with its own"
        yield InvalidInput("adapter", adapter.name, reason, valid=valid)


def _unsuitable_baseline(
    request: CampaignCreate, space: SearchSpace, profile: ClusterProfile | None
) -> Iterator[InvalidInput]:
    baseline = None if request.baseline is None else baseline_of(request, space)
    if baseline is None:
        return  # a default one belongs to the space, which was checked as a whole
    alone = Lattice.of([baseline], gpus_per_node=space.machine.gpus_per_node)
    for reason in reasons_not_to_run(request, profile, alone):
        yield InvalidInput("baseline", baseline.short(), reason, valid=OTHER_BASELINE)
