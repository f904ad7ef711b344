"""The stack of a trial: its machine and its trainer. Trials of one stack are comparable."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from autotune.calibration import machine_figures
from autotune.resolution import machine_of
from autotune.schemas.requests import CampaignCreate
from autotune.schemas.shapes import MachineShape
from evaluators.cluster import profile_from_dict
from evaluators.frameworks.deepspeed import OVERLAP


def machine_digest(machine: MachineShape) -> str:
    """Return the SHA-256 of the figures of a machine that determine time and memory."""
    figures = json.dumps(machine_figures(machine_of(machine)), sort_keys=True)
    return hashlib.sha256(figures.encode()).hexdigest()


def program_of(request: CampaignCreate, profile: Mapping[str, Any] | None) -> str:
    """Return the name of what a campaign's trials train with, without its version.

    Simulated trials of another seed ran on another machine.

    Args:
        profile: of the cluster, or of the adapter, as stored with the campaign.
    """
    return f"simulated {request.seed}" if request.evaluator == "simulated" else trainer_of(profile)


def trainer_of(profile: Mapping[str, Any] | None) -> str:
    """Return the name of the trainer of trials that are not simulated; the bundled one without a
    profile. It includes settings that strategies omit: after a trainer learns to overlap its
    communication, its earlier trials are no longer comparable."""
    kept = profile or {}
    program = str(kept.get("program", "trainer"))
    own: Sequence[Mapping[str, Any]] = (asdict(OVERLAP),)
    if adapter := kept.get("adapter"):
        program, own = f"adapter {adapter['name']}", adapter.get("dimensions", ())
    elif variant := kept.get("megatron", {}).get("variant"):
        program = f"{program} {variant}"
    usual = {each["name"]: each["values"][0] for each in own if not each.get("searched", True)}
    # A digest, because the column has 64 characters.
    mark = hashlib.sha256(json.dumps(usual, sort_keys=True).encode()).hexdigest()[:5]
    return f"{program}+{mark}" if usual else program


def adapter_version(profile: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the name and digest of a campaign's adapter, as an entry of versions; empty without
    one."""
    if not profile or not profile.get("adapter"):
        return {}
    adapter = profile_from_dict(profile, source="the campaign's profile").adapter
    return {"adapter": adapter.label} if adapter else {}
