"""Objectives of campaigns, and their memory bound."""

from __future__ import annotations

import math
from collections.abc import Mapping

from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import Objective
from autotune.schemas.trials import TrialMetrics
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine

OBJECTIVE_UNITS: Mapping[Objective, str] = {
    "tokens_per_s": "tokens/s",
    "tokens_per_s_per_gpu": "tokens/s per GPU",
    "tokens_per_node_hour": "tokens per node-hour",
    "tokens_per_joule": "tokens/J",
}
"""Of each, as a reader is shown it."""

BETTER: Mapping[Objective, str] = {
    "tokens_per_s": "faster",
    "tokens_per_s_per_gpu": "faster per GPU",
    "tokens_per_node_hour": "better in tokens per node-hour",
    "tokens_per_joule": "better in tokens per joule",
}
"""Words for a layout with a higher objective, after a percentage."""

POWER_FIGURES = ("gpu_idle_watt", "gpu_max_watt", "host_watt")


def unknown_objective(objective: Objective, machine: Machine) -> InvalidInput | None:
    """Return why a machine does not support this objective; None if it does."""
    missing = [name for name in POWER_FIGURES if getattr(machine, name) is None]
    if objective != "tokens_per_joule" or not missing:
        return None
    return InvalidInput(
        "objective",
        objective,
        f"the power of {machine.name} is not known: it has no {', '.join(missing)}",
        valid="another objective, or a machine file with these figures",
    )


def memory_limit_gib(campaign: Campaign) -> float:
    """Return the highest peak of the fullest GPU that leaves the headroom; infinite without a
    headroom: a layout that ran fits."""
    headroom = campaign.request.min_headroom_gib
    return campaign.machine.memory_gib - headroom if headroom else math.inf


def keeps_headroom(campaign: Campaign, figures: TrialMetrics) -> bool:
    peak = figures.peak_memory_gib
    return peak is None or peak <= memory_limit_gib(campaign)
