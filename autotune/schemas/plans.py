"""What is answered of a whole campaign before any of its trials runs."""

from __future__ import annotations

from pydantic import Field

from autotune.schemas.campaigns import StartedFrom
from autotune.schemas.choices import Objective
from autotune.schemas.predictions import CampaignCost, CampaignGain, SweepRow
from autotune.schemas.shapes import MachineShape, ModelShape, StrategyShape
from autotune.schemas.wire import Wire
from search_spaces.dimensions import Scalar


class PlannedStrategy(SweepRow):
    """A strategy as it is predicted, by part; `rank` is by the campaign's objective."""

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


class PlanRemedy(Wire):
    """A change of the question with which something probably fits."""

    fields: dict[str, int | str | list[Scalar]]
    """Fields of the request (`nodes`, `space.zero_stage` …), and what to set them to."""
    strategy: StrategyShape
    """The fastest that then fits."""
    memory_gib: float
    """Its predicted peak memory, GiB."""
    sentence: str
    """All of this in words."""


class CampaignPlan(Wire):
    """What can be said of a question before anything runs; all of it is predicted."""

    model: ModelShape
    """The model in full."""
    machine: MachineShape
    """The machine in full."""
    objective: Objective
    """What is to be as high as possible."""
    nodes: int
    """The most nodes that a strategy may use."""
    legal: int
    """Strategies that no rule refuses."""
    fitting: int
    """Legal strategies that probably fit."""
    layouts: int
    """Fitting strategies that differ in more than GAS."""
    global_batch_sizes: list[int]
    """Global batch sizes of the legal strategies, samples."""
    memory_limit_gib: float
    """Memory of a GPU that is taken to fit, GiB."""
    best: list[PlannedStrategy]
    """The best predicted strategies, one of each layout."""
    baseline: PlannedStrategy | None = None
    """What a campaign would measure first and be told against; null where it does without."""
    over_baseline: float | None = None
    """Objective of the best over the baseline's; null without one."""
    cost: CampaignCost | None = None
    """What the campaign would cost; null where nothing fits."""
    gain: CampaignGain | None = None
    """What it would find beyond the prediction; null where nothing fits."""
    time_note: str = ""
    """Which part of the time rests on an assumed pipeline bubble; empty once trials measured it."""
    started_from: list[StartedFrom] = Field(default_factory=list)
    """Earlier trials of the machine and program that the figures rest on, and that a campaign would
    start from."""
    simulated: bool = False
    """Whether those are simulated trials: only where the question names the simulated evaluator.
    All others are answered from measured trials alone."""
    obstacle: str = ""
    """Why there is nothing to try; empty where there is something."""
    remedies: list[PlanRemedy] = Field(default_factory=list)
    """What would give something to try; empty where there is something."""
    seconds: float
    """What working it out took, s."""
    sentence: str
    """The plan in words."""
