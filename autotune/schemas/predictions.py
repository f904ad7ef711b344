"""What is answered before anything runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from autotune.schemas.calibrations import CalibrationSummary
from autotune.schemas.campaigns import FewNodes
from autotune.schemas.requests import CalibrationChoice, SpaceQuery
from autotune.schemas.shapes import MachineShape, ModelShape, StrategyShape
from autotune.schemas.wire import Wire
from search_spaces.dimension import Scalar


class BrokenRule(Wire):
    """A rule that a strategy breaks, and why; or how many strategies of a space break it."""

    rule: str
    reason: str
    count: int = 1
    severity: Literal["refuse", "warn"] = "refuse"


class SpaceReport(Wire):
    """Counts of a space. `legal_layouts` counts strategies that differ in more than GAS, and
    `layouts` those of them that are predicted to fit: what there is to try. `refusals` gives for
    each rule how many raw points it removes, most first."""

    model: ModelShape
    machine: MachineShape
    dimensions: dict[str, list[Scalar]]
    raw: int
    legal: int
    fitting: int
    layouts: int
    legal_layouts: int = 0
    global_batch_sizes: list[int]
    refusals: list[BrokenRule]
    warnings: list[str] = Field(default_factory=list)


class LeftOut(Wire):
    """A strategy that a space lacks and that is predicted to be better than the best of it.

    `dimensions` are those whose values the space lacks, one where it was relaxed alone; `gain` is a
    share of the objective, at the same nodes and global batch.
    """

    dimensions: list[str]
    strategy: StrategyShape
    gain: float
    sentence: str


class BaselinePlan(Wire):
    """The layout that a campaign would measure first; `given` where it is the user's own.

    `memory_gib` is predicted, `memory_limit_gib` what the cost model takes to fit; `keeps_headroom`
    is whether it is predicted to fit and leave the memory that the campaign asks for.
    """

    given: bool
    strategy: StrategyShape
    global_batch_size: int
    memory_gib: float
    memory_limit_gib: float
    fits: bool
    keeps_headroom: bool = True


class DryRun(Wire):
    """What a campaign would do. `trials_affordable`: predicted trials that the budget buys.

    `left_out`: what the space lacks and is predicted to be better by 2 % or more, best first.
    `baseline`: what would be measured first; None where it does without one. `screening`: on how
    few nodes trials of the search would run, which `node_hours_per_trial` is of.
    """

    space: SpaceReport
    node_hours_per_trial: float
    node_hours_budget: float | None
    node_hours_expected: float
    trials_affordable: int
    left_out: list[LeftOut] = Field(default_factory=list)
    baseline: BaselinePlan | None = None
    screening: FewNodes | None = None


class MemoryChange(Wire):
    """What makes a strategy fit: values to change, and what it is then.

    `global_batch_size` is kept where whole micro-batches make it. `relative`: rate for each node
    over that of the strategy as it is, if that had the memory.
    """

    changes: dict[str, Scalar]
    strategy: StrategyShape
    global_batch_size: int
    memory_gib: float
    fit_probability: float
    iteration_time_s: float
    relative: float
    sentence: str


class Prediction(Wire):
    """Predicted figures of one strategy; all None or empty where it is illegal.

    `…_low` and `…_high`: of measurements 80 % are to lie between them. `fit_probability`: that
    memory suffices; `fits` says whether it is over one half. `joules_per_token`: of all nodes,
    hosts included, with the GPUs' power as `power_trials` measured it. `calibration`: the trials
    that the figures rest on; None where they are general knowledge of the machine's kind alone.
    `memory_sentence`: where the memory is, and whether it suffices; `memory_changes`: the fewest
    changes that make it suffice, the fastest first, none where it does.
    """

    model: ModelShape
    machine: MachineShape
    strategy: StrategyShape
    legal: bool
    reasons: list[BrokenRule]
    fits: bool | None = None
    data_parallel: int | None = None
    global_batch_size: int | None = None
    iteration_time_s: float | None = None
    iteration_time_low_s: float | None = None
    iteration_time_high_s: float | None = None
    tokens_per_s: float | None = None
    tokens_per_s_per_gpu: float | None = None
    model_tflops_per_gpu: float | None = None
    hardware_tflops_per_gpu: float | None = None
    mfu: float | None = None
    hfu: float | None = None
    memory_gib: float | None = None
    memory_low_gib: float | None = None
    memory_high_gib: float | None = None
    memory_limit_gib: float | None = None
    fit_probability: float | None = None
    joules_per_token: float | None = None
    power_trials: int = 0
    calibration: CalibrationSummary | None = None
    time_parts_s: dict[str, float] = Field(default_factory=dict)
    memory_parts_gib: dict[str, float] = Field(default_factory=dict)
    memory_sentence: str = ""
    memory_changes: list[MemoryChange] = Field(default_factory=list)


class SweepQuery(SpaceQuery):
    """A space, and what its prediction rests on. `most`: rows of the answer."""

    calibration: CalibrationChoice = None
    most: Annotated[int, Field(ge=1, le=1000)] = 20


class SweepRow(Wire):
    """One strategy of a sweep. `rank` is by predicted rate among those that probably fit."""

    rank: int
    strategy: StrategyShape
    global_batch_size: int
    tokens_per_s: float
    tokens_per_s_low: float
    tokens_per_s_high: float
    iteration_time_s: float
    memory_gib: float
    fit_probability: float


class CampaignCost(Wire):
    """What a campaign costs if it takes all of its budget; most end earlier. `node_hours` has the
    baseline and the confirmations, `node_hours_per_trial` is of one trial of the search."""

    trials: int
    node_hours_per_trial: float
    node_hours: float


class CampaignGain(Wire):
    """What there is to be found beyond the best prediction.

    Held against taking the best predicted strategy as it is, and the next one where it does not
    fit. `rate_gain`: share of the objective that the best of all is expected to be better by;
    `rate_gain_high`: in one case of ten it is more. `probability_better`: that some other strategy
    is better by 1 % or more. `saved_share`: expected share of a training's cost that knowing the
    best saves. `training_node_hours`, `saved_node_hours`: over the training tokens, where the
    question gives them. `break_even_tokens`: of training, after which the whole campaign has paid
    for itself; None where nothing is expected to be saved.
    """

    rate_gain: float
    rate_gain_high: float
    probability_better: float
    saved_share: float
    node_hours_per_token: float
    training_tokens: float | None = None
    training_node_hours: float | None = None
    saved_node_hours: float | None = None
    break_even_tokens: float | None = None


class Sweep(Wire):
    """A whole space in the order of its predicted rate. `fitting`: strategies that memory suffices
    for with a probability of over one half; `rows`: the best of them. `cost`, `gain`: what a
    campaign over the space with the usual budget would cost, and find beyond the prediction."""

    model: ModelShape
    machine: MachineShape
    legal: int
    fitting: int
    calibration: CalibrationSummary | None = None
    seconds: float
    rows: list[SweepRow]
    cost: CampaignCost | None = None
    gain: CampaignGain | None = None
