"""What is answered of a whole campaign before any of its trials runs."""

from __future__ import annotations

from pydantic import Field

from autotune.schemas.campaigns import StartedFrom
from autotune.schemas.predictions import CampaignCost, CampaignGain, SweepRow
from autotune.schemas.shapes import MachineShape, ModelShape, StrategyShape
from autotune.schemas.wire import Objective, Wire
from search_spaces.dimension import Scalar


class PlannedStrategy(SweepRow):
    """A strategy as it is predicted, by part. `rank` is by the campaign's objective.

    `…_low` and `…_high` end 80 % intervals. `time_parts_s` add up to `iteration_time_s`,
    `memory_parts_gib` to `memory_gib`, the peak of the fullest GPU. `fit_probability`: with the
    headroom that is asked for.
    """

    objective: float = Field(description="predicted value of the campaign's objective")
    iteration_time_low_s: float
    iteration_time_high_s: float
    memory_low_gib: float
    memory_high_gib: float
    time_parts_s: dict[str, float]
    memory_parts_gib: dict[str, float]


class PlanRemedy(Wire):
    """A change of the question with which something probably fits: fields of the request and what
    to set them to (`nodes`, `space.zero_stage` …), and the fastest that then fits."""

    fields: dict[str, int | str | list[Scalar]]
    strategy: StrategyShape
    memory_gib: float
    sentence: str


class CampaignPlan(Wire):
    """What can be said of a question before anything runs; all of it is predicted.

    `legal`: strategies; `fitting`: those of them that probably fit; `layouts`: the fitting ones
    that differ in more than GAS. `best`: one of each layout. `baseline`: what a campaign would
    measure first and be told against; `over_baseline`: objective of the best over that.
    `started_from`: earlier trials of the machine and program that the figures rest on, and that a
    campaign would start from. `obstacle`: why there is nothing to try, with `remedies`; both empty
    where there is something.
    """

    model: ModelShape
    machine: MachineShape
    objective: Objective
    nodes: int
    legal: int
    fitting: int
    layouts: int
    global_batch_sizes: list[int]
    memory_limit_gib: float
    best: list[PlannedStrategy]
    baseline: PlannedStrategy | None = None
    over_baseline: float | None = None
    cost: CampaignCost | None = None
    gain: CampaignGain | None = None
    started_from: list[StartedFrom] = Field(default_factory=list)
    obstacle: str = ""
    remedies: list[PlanRemedy] = Field(default_factory=list)
    seconds: float
    sentence: str
