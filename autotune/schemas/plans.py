"""Predictions for a campaign before it runs."""

from __future__ import annotations

from pydantic import Field

from autotune.schemas.campaigns import StartedFrom
from autotune.schemas.choices import Objective
from autotune.schemas.predictions import CampaignCost, CampaignGain, LayoutChange, SweepRow
from autotune.schemas.shapes import Subject


class PlannedStrategy(SweepRow):
    """Prediction of a strategy, by part; `rank` is by the campaign's objective."""

    objective: float
    """Predicted value of the campaign's objective."""
    iteration_time_low_s: float
    """Lower end of the 80 % interval of the time of a step, s."""
    iteration_time_high_s: float
    """Upper end of the 80 % interval of the time of a step, s."""
    memory_low_gib: float
    """Lower end of the 80 % interval of the peak memory, GiB."""
    memory_high_gib: float
    """Upper end of the 80 % interval of the peak memory, GiB."""
    time_parts_s: dict[str, float]
    """Time by part, s; they add up to `iteration_time_s`."""
    memory_parts_gib: dict[str, float]
    """Memory by part, GiB; they add up to `memory_gib`."""


class CampaignPlan(Subject):
    """Predictions for a request before anything runs."""

    objective: Objective
    """What is to be as high as possible."""
    nodes: int
    """Maximum nodes of a strategy."""
    legal: int
    """Legal strategies."""
    fitting: int
    """Legal strategies that probably fit."""
    layouts: int
    """Number of layouts among the fitting strategies."""
    global_batch_sizes: list[int]
    """Global batch sizes of the legal strategies, samples."""
    memory_limit_gib: float
    """Usable memory of a GPU, GiB."""
    best: list[PlannedStrategy]
    """The best predicted strategies, one per layout."""
    baseline: PlannedStrategy | None = None
    """The baseline, which a campaign measures first; null without one."""
    over_baseline: float | None = None
    """Objective of the best over the baseline's; null without one."""
    cost: CampaignCost | None = None
    """Cost of the campaign; null if nothing fits."""
    gain: CampaignGain | None = None
    """Expected gain over the best prediction; null if nothing fits."""
    started_from: list[StartedFrom] = Field(default_factory=list)
    """Earlier trials of the machine and trainer on which the predictions are based, and from which
    a campaign would start."""
    simulated: bool = False
    """Whether those are simulated trials: only where the question names the simulated evaluator.
    All others are answered from measured trials alone."""
    obstacle: str = ""
    """Why no strategy can be tried; empty if one can."""
    remedies: list[LayoutChange] = Field(default_factory=list)
    """Changes with which a strategy could be tried; empty if one already can."""
    seconds: float
    """Computation time, s."""
    sentence: str
    """The plan in words."""
