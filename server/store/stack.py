"""Which trials tell of one another: those of one machine and one program."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from autotune.calibration import machine_figures
from autotune.resolution import machine_of
from autotune.schemas import CampaignCreate, MachineShape
from evaluators.cluster import profile_from_dict
from evaluators.frameworks.deepspeed import OVERLAP


def machine_digest(machine: MachineShape) -> str:
    """Return the SHA-256 of the figures that time and memory follow from on a machine."""
    figures = json.dumps(machine_figures(machine_of(machine)), sort_keys=True)
    return hashlib.sha256(figures.encode()).hexdigest()


def program_of(request: CampaignCreate, profile: Mapping[str, Any] | None) -> str:
    """Return what a campaign's trials train with, whatever its version.

    Simulated trials of another seed met another machine. What strategies need not mention is part
    of it: where a trainer comes to overlap its communication, earlier trials tell nothing.

    Args:
        profile: of the cluster, or of the adapter, as it is kept with the campaign.
    """
    return f"simulated {request.seed}" if request.evaluator == "simulated" else trainer_of(profile)


def trainer_of(profile: Mapping[str, Any] | None) -> str:
    """Return what trials train with that are no simulated ones; the bundled trainer without a
    profile."""
    kept = profile or {}
    program = str(kept.get("program", "trainer"))
    own: Sequence[Mapping[str, Any]] = (asdict(OVERLAP),)
    if adapter := kept.get("adapter"):
        program, own = f"adapter {adapter['name']}", adapter.get("dimensions", ())
    elif variant := kept.get("megatron", {}).get("variant"):
        program = f"{program} {variant}"
    usual = {each["name"]: each["values"][0] for each in own if not each.get("searched", True)}
    # Of any length as text, and the column has 64 characters.
    mark = hashlib.sha256(json.dumps(usual, sort_keys=True).encode()).hexdigest()[:5]
    return f"{program}+{mark}" if usual else program


def adapter_version(profile: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the adapter of a campaign's trials by name and digest, as versions have it; nothing
    where they have none."""
    if not profile or not profile.get("adapter"):
        return {}
    adapter = profile_from_dict(profile, source="the campaign's profile").adapter
    return {"adapter": adapter.label} if adapter else {}
