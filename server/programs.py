"""The program that runs the trials of a request, and its capabilities."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from autotune.schemas.requests import (
    AdapterFile,
    CampaignCreate,
    PredictionQuery,
    RayChoice,
)
from autotune.schemas.resolution import machine_of, transformer_of
from evaluators.adapter.adapter import Adapter
from evaluators.adapter.catalog import load_adapter
from evaluators.adapter.reading import read_sent_adapter
from evaluators.cluster import ClusterProfile, load_profile, profile_names
from evaluators.cluster.knobs import read_knob_file
from evaluators.program.support import capabilities_of
from evaluators.trainer.support import unsupported_within
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.lattice import Lattice
from search_spaces.program import ProgramCapabilities
from search_spaces.traits import Trait, traits_among, with_traits
from server.settings import Settings

FILES = {
    "adapter": ("an adapter's file", "a name of `autotune adapter list`"),
    "knob_file": ("a file of knobs", "knobs of a profile or an adapter"),
}
"""Field of a request -> what it sends, and what may be named instead."""

RunChoice = CampaignCreate | PredictionQuery
"""Requests with the fields `evaluator`, `slurm`, `ray` and `adapter`."""


def is_simulated(question: RunChoice) -> bool:
    """Return whether a query names the simulated evaluator. One without an evaluator is answered
    from measured trials only."""
    return question.evaluator == "simulated" and "evaluator" in question.model_fields_set


def chosen_program(
    request: RunChoice, settings: Settings, *, as_admin: bool = False
) -> ProgramCapabilities:
    """Return the capabilities of the program of a request's trials, with the request's traits.

    Raises:
        InvalidInput: as `chosen_profile` does.
        InvalidInputs: fields in `traits`.
    """
    program = program_of(request, chosen_profile(request, settings, as_admin=as_admin))
    return replace(program, states=with_traits(program.states, _traits_of(request)))


def _traits_of(request: RunChoice) -> dict[str, Trait]:
    """Return the traits in a request: those of a prediction, and trainer-defined dimensions with
    one value that are traits."""
    named: Mapping[str, object] = (
        dict(request.strategy.settings)
        if isinstance(request, PredictionQuery)
        else request.space.settings
    )
    given = request.traits if isinstance(request, PredictionQuery) else {}
    return traits_among(named) | given


def chosen_profile(
    request: RunChoice, settings: Settings, *, as_admin: bool = False
) -> ClusterProfile | None:
    """Return the profile of the cluster that trials run on, with the adapter of their trainer; None
    for the bundled trainer without a cluster.

    The slurm evaluator requires a profile. The ray evaluator accepts an address instead, and this
    machine and the simulator an adapter. On a shared service only admins may send an adapter's
    file, unless the settings allow it to all.

    Raises:
        InvalidInput: fields `slurm`, `ray`, those in them, and `adapter`.
    """
    profile = _cluster_profile(request, settings.profiles_dir)
    if isinstance(request, CampaignCreate) and request.knob_file:
        _demand_files_allowed("knob_file", request.knob_file[:80], settings, as_admin=as_admin)
        profile = profile or ClusterProfile(name="local")
        own = read_knob_file(request.knob_file)
        profile = replace(profile, knob={**profile.knob, **own})
    named = profile.trainer if profile else None
    if not request.adapter or (named and named.adapter == request.adapter):
        return profile
    sent = request.adapter if isinstance(request.adapter, AdapterFile) else None
    name = sent.name if sent else request.adapter
    if sent:
        _demand_files_allowed("adapter", name, settings, as_admin=as_admin)
    try:
        adapter = _adapter_of(request.adapter, settings.adapters_dir)
    except InvalidInput as fault:
        reason = fault.reason if fault.field == "adapter" else str(fault)
        raise InvalidInput("adapter", name, reason, valid=fault.valid) from fault
    except InvalidInputs as faults:
        valid = "an adapter without faults"
        raise InvalidInput("adapter", name, str(faults), valid=valid) from faults
    return replace(profile or ClusterProfile(name="local"), adapter=adapter)


def _demand_files_allowed(field: str, value: object, settings: Settings, *, as_admin: bool) -> None:
    """Raise InvalidInput where a file of the request would run as the service's user, and may
    not."""
    if settings.group and not (as_admin or settings.allow_adapter_files):
        file, valid = FILES[field]
        reason = f"on a shared service only admins may send {file}"
        raise InvalidInput(field, value, reason, valid=valid)


def _adapter_of(choice: str | AdapterFile, folder: Path) -> Adapter:
    if isinstance(choice, str):
        return load_adapter(choice, folder=folder)
    path = Path(choice.folder) / f"{choice.name}.toml"
    return read_sent_adapter(choice.text, path, files=choice.files)


def _cluster_profile(request: RunChoice, folder: Path) -> ClusterProfile | None:
    if request.evaluator == "ray":
        return _ray_profile(request, folder)
    if request.ray is not None:
        reason = f"the {request.evaluator} evaluator has no Ray cluster"
        raise InvalidInput("ray", request.ray.address, reason, valid="the ray evaluator")
    choice = request.slurm
    if request.evaluator != "slurm":
        if choice is not None:
            reason = f"the {request.evaluator} evaluator has no cluster profile"
            raise InvalidInput("slurm", choice.profile, reason, valid="the slurm evaluator")
        return None
    if choice is None:
        valid = " or ".join(profile_names(folder))
        reason = "the slurm evaluator needs a cluster profile"
        raise InvalidInput("slurm.profile", None, reason, valid=valid)
    return _loaded(choice.profile, folder, field="slurm.profile")


def known_ray_addresses(settings: Settings) -> list[str]:
    """Return the Ray clusters in the settings and profiles of the service."""
    addresses = set(settings.ray_addresses)
    for name in profile_names(settings.profiles_dir):
        with suppress(InvalidInput, InvalidInputs):
            addresses.add(load_profile(name, folder=settings.profiles_dir).ray.address)
    return sorted(addresses - {""})


def demand_known_ray(request: RunChoice, settings: Settings) -> None:
    """Raise InvalidInput if a user of a shared service names an unknown Ray cluster, which the
    service would connect to."""
    address = request.ray.address if request.ray else ""
    if not settings.group or not address:
        return
    known = known_ray_addresses(settings)
    if address not in known:
        reason = "a shared service connects only to its configured Ray clusters"
        valid = " or ".join(known) or "a profile with an address, which an admin adds"
        raise InvalidInput("ray.address", address, reason, valid=valid)


def _ray_profile(request: RunChoice, folder: Path) -> ClusterProfile:
    if request.slurm is not None:
        reason = "the ray evaluator has its profile elsewhere"
        raise InvalidInput("slurm", request.slurm.profile, reason, valid="ray.profile")
    choice = request.ray or RayChoice()
    profile = ClusterProfile(name="ray")
    if choice.profile:
        profile = _loaded(choice.profile, folder, field="ray.profile")
    address = choice.address or profile.ray.address
    return replace(profile, ray=replace(profile.ray, address=address))


def _loaded(name: str, folder: Path, *, field: str) -> ClusterProfile:
    try:
        return load_profile(name, folder=folder)
    except InvalidInput as fault:
        reason = fault.reason if fault.field == "profile" else str(fault)
        raise InvalidInput(field, name, reason, valid=fault.valid) from fault
    except InvalidInputs as faults:
        raise InvalidInput(field, name, str(faults), valid="a profile without faults") from faults


def program_of(request: RunChoice, profile: ClusterProfile | None) -> ProgramCapabilities:
    return capabilities_of(request.evaluator, profile)


def reasons_not_to_run(
    request: RunChoice, profile: ClusterProfile | None, lattice: Lattice
) -> list[str]:
    """Return why the bundled trainer cannot run these strategies on this machine."""
    here = request.evaluator == "local" and not (profile and profile.adapter)
    refused = unsupported_within(lattice) if here else None
    return [refused] if refused else []


def refusals_of(query: PredictionQuery, settings: Settings, *, as_admin: bool = False) -> list[str]:
    """Return why the program of a query cannot run its strategy; empty for an unknown model or
    machine, which are reported elsewhere."""
    profile = chosen_profile(query, settings, as_admin=as_admin)
    try:
        transformer_of(query.model)
        machine = machine_of(query.machine)
    except (InvalidInput, InvalidInputs):
        return []
    alone = Lattice.of([query.strategy], gpus_per_node=machine.gpus_per_node)
    return reasons_not_to_run(query, profile, alone)
