"""Objectives of campaigns, and the memory that a layout must leave free."""

from __future__ import annotations

import math
from collections.abc import Mapping

from autotune.cost_model.parameters import Parameters
from autotune.schemas.campaigns import Campaign
from autotune.schemas.choices import Objective
from autotune.schemas.trials import TrialMetrics
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine
from search_spaces.transformer import Transformer

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

GROWTH_DENSE = 0.003
GROWTH_WITH_EXPERTS = 0.03
"""Mean relative growth of a GPU's peak memory from a trial's steps to a whole training.

Rest on the golden values of Megatron-LM's functional tests (d98e8a6): peaks of steps 1 to 12
against peaks of 47 to 9,529 steps. Of 26 dense configurations 25 grew by less than 0.2 %, one by
2.8 %; six with experts and more than 5 GiB grew by 2.6 % in the mean, one model by 15 %.
"""

RISK = 0.05
"""Probability of running out of memory during a training that a recommended layout may have."""

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


def headroom_of(
    min_headroom_gib: float | None, transformer: Transformer, machine: Machine
) -> float:
    """Return the memory in GiB that must stay free on the fullest GPU: the requested headroom, or
    what keeps the probability of running out during a training at RISK.

    The growth of the peak is taken as exponentially distributed, on top of the part of the device
    that predictions keep free (`Parameters.usable_memory`).
    """
    if min_headroom_gib is not None:
        return min_headroom_gib
    usable = Parameters.default(machine).usable_gib(machine)
    return machine.memory_gib - usable / (1.0 - _growth(transformer) * math.log(RISK))


def risk_of_running_out(peak_gib: float, transformer: Transformer, machine: Machine) -> float:
    """Return the probability that a training runs out of memory whose trial had this peak.

    1 for peaks above the memory that predictions use, although such trials ran.
    """
    usable = Parameters.default(machine).usable_gib(machine)
    room = usable / peak_gib - 1.0
    return math.exp(-max(room, 0.0) / _growth(transformer))


def _growth(transformer: Transformer) -> float:
    return GROWTH_DENSE if transformer.experts is None else GROWTH_WITH_EXPERTS


def campaign_headroom_gib(campaign: Campaign) -> float:
    return headroom_of(campaign.request.min_headroom_gib, campaign.model, campaign.machine)


def memory_limit_gib(campaign: Campaign) -> float:
    """Return the highest peak of the fullest GPU that leaves the headroom; infinite for a headroom
    of 0: a layout that ran fits."""
    headroom = campaign_headroom_gib(campaign)
    return campaign.machine.memory_gib - headroom if headroom else math.inf


def keeps_headroom(campaign: Campaign, figures: TrialMetrics) -> bool:
    peak = figures.peak_memory_gib
    return peak is None or peak <= memory_limit_gib(campaign)
