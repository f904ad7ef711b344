"""Predictions for a campaign before it runs."""

from __future__ import annotations

from pydantic import Field

from autotune.schemas.campaigns import FewNodes, StartedFrom
from autotune.schemas.choices import Objective
from autotune.schemas.predictions import BrokenRule, CampaignCost, CampaignGain, LayoutChange
from autotune.schemas.shapes import Subject
from autotune.schemas.wire import Wire
from search_spaces.dimensions import Scalar
from search_spaces.strategy import Strategy


class PlannedStrategy(Wire):
    """Prediction of a strategy, by part."""

    rank: int
    """Rank by the predicted objective among those that probably fit; 1 is the best."""
    strategy: Strategy
    """The strategy."""
    global_batch_size: int
    """Samples of one optimizer step."""
    objective: float
    """Predicted value of the campaign's objective."""
    tokens_per_s: float
    """Predicted median rate, tokens/s."""
    tokens_per_s_low: float
    """Lower end of its 80 % interval, tokens/s."""
    tokens_per_s_high: float
    """Upper end of its 80 % interval, tokens/s."""
    iteration_time_s: float
    """Predicted median time of an optimizer step, s."""
    iteration_time_low_s: float
    """Lower end of the 80 % interval of the time of a step, s."""
    iteration_time_high_s: float
    """Upper end of the 80 % interval of the time of a step, s."""
    memory_gib: float
    """Predicted peak memory of the fullest GPU, GiB."""
    memory_low_gib: float
    """Lower end of the 80 % interval of the peak memory, GiB."""
    memory_high_gib: float
    """Upper end of the 80 % interval of the peak memory, GiB."""
    fit_probability: float
    """Probability that it fits into memory, with the headroom free."""
    time_parts_s: dict[str, float]
    """Time by part, s; they add up to `iteration_time_s`."""
    memory_parts_gib: dict[str, float]
    """Memory by part, GiB; they add up to `memory_gib`."""


class CampaignPlan(Subject):
    """What a campaign's space has, what is predicted of it, and what searching it would cost."""

    objective: Objective
    """What is to be as high as possible."""
    nodes: int
    """Maximum nodes of a strategy."""
    dimensions: dict[str, list[Scalar]]
    """Values of each dimension."""
    raw: int
    """Points of the grid of all dimensions."""
    legal: int
    """Legal strategies."""
    legal_layouts: int
    """Number of layouts among the legal strategies."""
    fitting: int
    """Legal strategies that probably fit."""
    layouts: int = 0
    """Number of layouts among the fitting strategies; if none probably fits, among those that
    may."""
    global_batch_sizes: list[int]
    """Global batch sizes of the legal strategies, samples."""
    refusals: list[BrokenRule]
    """Number of raw points that each rule removes, most first; a point may violate several
    rules."""
    warnings: list[str] = Field(default_factory=list)
    """Warnings about comparing its strategies, one sentence each."""
    memory_limit_gib: float
    """Usable memory of a GPU, GiB."""
    best: list[PlannedStrategy] = Field(default_factory=list)
    """The best predicted strategies, one per layout."""
    baseline: PlannedStrategy | None = None
    """The baseline, which a campaign measures first; null without one."""
    baseline_name: str = ""
    """Whose it is: `your own layout`, a vendor's recipe, or `a default layout`."""
    baseline_sentence: str = ""
    """The baseline's layout, origin and batch, with the options that were not read, and how likely
    it fits if it probably does not; empty without one."""
    over_baseline: float | None = None
    """Objective of the best over the baseline's; null without one."""
    cost: CampaignCost | None = None
    """Cost of the campaign; null if nothing fits."""
    screening: FewNodes | None = None
    """Number of nodes or layers of the search's trials; null if nothing fits."""
    gain: CampaignGain | None = None
    """Expected gain over the best prediction; null if nothing fits."""
    left_out: list[LayoutChange] = Field(default_factory=list)
    """Strategies outside the space that are predicted to be better by at least 2 %, best first."""
    started_from: list[StartedFrom] = Field(default_factory=list)
    """Earlier trials of the machine and trainer on which the predictions are based, and from which
    a campaign would start."""
    simulated: bool = False
    """Whether those are simulated trials: only where the question names the simulated evaluator.
    All others are answered only from measured trials."""
    obstacle: str = ""
    """Why no strategy can be tried; empty if one can."""
    remedies: list[LayoutChange] = Field(default_factory=list)
    """Changes with which a strategy could be tried; empty if one already can."""
    seconds: float = 0.0
    """Computation time, s."""
    sentence: str = ""
    """The plan in words."""
