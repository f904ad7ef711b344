"""What is answered before anything runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from autotune.schemas.calibrations import CalibrationSummary
from autotune.schemas.campaigns import FewNodes
from autotune.schemas.requests import SpaceQuery
from autotune.schemas.shapes import MachineShape, ModelShape, StrategyShape
from autotune.schemas.studies import StudyPlan
from autotune.schemas.wire import Label, Wire
from search_spaces.dimensions import Scalar


class BrokenRule(Wire):
    """A rule that a strategy breaks, and why; or how many strategies of a space break it."""

    rule: str
    """Name of the rule."""
    reason: str
    """What it demands, and how that is broken."""
    count: int = 1
    """Points or strategies that break it."""
    severity: Literal["refuse", "warn"] = "refuse"
    """Whether it makes a strategy illegal (`refuse`) or says what to expect (`warn`)."""


class SpaceReport(Wire):
    """Counts of a space: what there is, what is legal, and what is predicted to fit."""

    model: ModelShape
    """The model in full."""
    machine: MachineShape
    """The machine in full."""
    dimensions: dict[str, list[Scalar]]
    """Values of each dimension."""
    raw: int
    """Points of the grid of all dimensions."""
    legal: int
    """Strategies that no rule refuses."""
    fitting: int
    """Legal strategies that are predicted to fit."""
    layouts: int
    """Fitting strategies that differ in more than GAS: what there is to try."""
    legal_layouts: int = 0
    """Legal strategies that differ in more than GAS."""
    global_batch_sizes: list[int]
    """Global batch sizes of the legal strategies, samples."""
    refusals: list[BrokenRule]
    """How many raw points each rule removes, most first; one point may break several."""
    warnings: list[str] = Field(default_factory=list)
    """What to know before comparing its strategies, a sentence each."""


class LeftOut(Wire):
    """A strategy that a space lacks and that is predicted to be better than the best of it."""

    dimensions: list[str]
    """Those whose values the space lacks; one where it was relaxed alone."""
    strategy: StrategyShape
    """The strategy."""
    gain: float
    """Share of the objective by which it is better, at the same nodes and global batch."""
    sentence: str
    """All of this in words."""


class BaselinePlan(Wire):
    """The layout that a campaign would measure first."""

    given: bool
    """Whether it is the user's own, and not a customary one."""
    strategy: StrategyShape
    """The strategy."""
    global_batch_size: int
    """Samples of one optimizer step."""
    memory_gib: float
    """Predicted peak memory of the fullest GPU, GiB."""
    memory_limit_gib: float
    """Memory that the cost model takes to fit, GiB."""
    fits: bool
    """Whether it is predicted to fit."""
    keeps_headroom: bool = True
    """Whether it is predicted to fit and leave the memory that the campaign asks for."""


class DryRun(Wire):
    """What a campaign would do."""

    space: SpaceReport
    """What its space holds."""
    node_hours_per_trial: float
    """Predicted node-hours of one trial of the search, on few nodes where it would run there."""
    node_hours_budget: float | None
    """Node-hours that it may take; null: no bound."""
    node_hours_expected: float
    """Predicted node-hours of all its trials, baseline and confirmations among them."""
    trials_affordable: int
    """Predicted trials of the search that the budget buys."""
    left_out: list[LeftOut] = Field(default_factory=list)
    """What the space lacks and is predicted to be better by 2 % or more, best first."""
    baseline: BaselinePlan | None = None
    """What would be measured first; null where it does without."""
    screening: FewNodes | None = None
    """On how few nodes or layers trials of the search would run."""
    study: StudyPlan | None = None
    """What a scaling study would measure; null for a search."""


class MemoryChange(Wire):
    """What makes a strategy fit, and what it is then."""

    changes: dict[str, Scalar]
    """Dimensions to change, and what to set them to."""
    strategy: StrategyShape
    """The strategy as it is then."""
    global_batch_size: int
    """Samples of one optimizer step; the same as before where whole micro-batches make it."""
    memory_gib: float
    """Predicted peak memory of the fullest GPU, GiB."""
    fit_probability: float
    """Probability that memory suffices."""
    iteration_time_s: float
    """Predicted time of an optimizer step, s."""
    relative: float
    """Rate for each node over that of the strategy as it is, if that had the memory."""
    sentence: str
    """All of this in words."""


class Prediction(Wire):
    """Predicted figures of one strategy; all null or empty where it is illegal."""

    model: ModelShape
    """The model in full."""
    machine: MachineShape
    """The machine in full."""
    strategy: StrategyShape
    """The strategy that was asked about."""
    legal: bool
    """Whether no rule refuses it."""
    reasons: list[BrokenRule]
    """Rules that it breaks, refusals first."""
    fits: bool | None = None
    """Whether it is likelier than not that memory suffices."""
    data_parallel: int | None = None
    """Replicas of the model (DP)."""
    global_batch_size: int | None = None
    """Samples of one optimizer step."""
    iteration_time_s: float | None = None
    """Median time of an optimizer step, s."""
    iteration_time_low_s: float | None = None
    """Lower end of the 80 % interval of the measured time, s."""
    iteration_time_high_s: float | None = None
    """Upper end of the 80 % interval of the measured time, s."""
    tokens_per_s: float | None = None
    """Tokens trained in a second."""
    tokens_per_s_per_gpu: float | None = None
    """Tokens trained in a second on each GPU."""
    model_tflops_per_gpu: float | None = None
    """Model FLOPs of each GPU, TFLOP/s."""
    hardware_tflops_per_gpu: float | None = None
    """Hardware FLOPs of each GPU, recomputation included, TFLOP/s."""
    mfu: float | None = None
    """Model FLOPs over the peak, 0 to 1; null where the peak is not known."""
    hfu: float | None = None
    """Hardware FLOPs over the peak, 0 to 1; null where the peak is not known."""
    memory_gib: float | None = None
    """Median peak memory of the fullest GPU, GiB."""
    memory_low_gib: float | None = None
    """Lower end of the 80 % interval of the measured peak, GiB."""
    memory_high_gib: float | None = None
    """Upper end of the 80 % interval of the measured peak, GiB."""
    memory_limit_gib: float | None = None
    """Memory that is taken to fit, GiB."""
    fit_probability: float | None = None
    """Probability that memory suffices."""
    joules_per_token: float | None = None
    """Energy of all nodes, hosts included, J for a token; null where the machine's power figures
    are not known."""
    power_trials: int = 0
    """Trials whose sampled power that energy rests on."""
    calibration: CalibrationSummary | None = None
    """Trials that the figures rest on; null where they are general knowledge of the machine's
    kind."""
    time_parts_s: dict[str, float] = Field(default_factory=dict)
    """Time of a step by part (`products`, `attention`, `elementwise`, `recomputation`,
    `tensor_parallel`, `bubble`, `pipeline_transfer`, `data_parallel`, `optimizer`, `host`,
    `stragglers`), s."""
    time_note: str = ""
    """Which part of the time rests on an assumed pipeline bubble; empty once trials measured it."""
    memory_parts_gib: dict[str, float] = Field(default_factory=dict)
    """Peak memory by part (`parameters`, `gradients`, `optimizer`, `activations`, `recomputation`,
    `logits`, `zero3_gather`, `overhead`), GiB."""
    memory_sentence: str = ""
    """Where the memory is, and whether it suffices."""
    memory_changes: list[MemoryChange] = Field(default_factory=list)
    """The fewest changes that make memory suffice, the fastest first; none where it does."""


class SweepQuery(SpaceQuery):
    """A space, and what its prediction rests on."""

    calibration: Label | None = None
    """Name of a calibration of this machine, or `"none"` for what is generally known of the
    machine's kind; null: the newest of measured trials of the machine, and of simulated ones where
    the evaluator is given as simulated."""
    most: Annotated[int, Field(ge=1, le=1000)] = 20
    """Rows of the answer at most."""


class SweepRow(Wire):
    """One strategy of a sweep."""

    rank: int
    """By predicted rate among those that probably fit; 1 is the best."""
    strategy: StrategyShape
    """The strategy."""
    global_batch_size: int
    """Samples of one optimizer step."""
    tokens_per_s: float
    """Predicted median rate, tokens/s."""
    tokens_per_s_low: float
    """Lower end of its 80 % interval, tokens/s."""
    tokens_per_s_high: float
    """Upper end of its 80 % interval, tokens/s."""
    iteration_time_s: float
    """Predicted median time of an optimizer step, s."""
    memory_gib: float
    """Predicted peak memory of the fullest GPU, GiB."""
    fit_probability: float
    """Probability that memory suffices."""


class CampaignCost(Wire):
    """What a campaign costs if it takes all of its budget; most end earlier."""

    trials: int
    """Trials of the search."""
    node_hours_per_trial: float
    """Node-hours of one trial of the search."""
    node_hours: float
    """Node-hours of all trials, baseline and confirmations among them."""


class CampaignGain(Wire):
    """What there is to be found beyond the best prediction.

    Held against taking the best predicted strategy as it is, and the next one where it does not
    fit.
    """

    rate_gain: float
    """Share of the objective that the best of all is expected to be better by."""
    rate_gain_high: float
    """In one case of ten that share is larger than this."""
    probability_better: float
    """Probability that some other strategy is better by 1 % or more."""
    saved_share: float
    """Expected share of a training's cost that knowing the best saves."""
    node_hours_per_token: float
    """Node-hours for a token with the best predicted strategy."""
    training_tokens: float | None = None
    """Training tokens that the question gives; null where it gives none."""
    training_node_hours: float | None = None
    """Node-hours of that training; null where no tokens are given."""
    saved_node_hours: float | None = None
    """Node-hours that it is expected to save; null where no tokens are given."""
    break_even_tokens: float | None = None
    """Training tokens after which the whole campaign has paid for itself; null where nothing is
    expected to be saved."""


class Sweep(Wire):
    """A whole space in the order of its predicted rate."""

    model: ModelShape
    """The model in full."""
    machine: MachineShape
    """The machine in full."""
    legal: int
    """Strategies that no rule refuses."""
    fitting: int
    """Strategies that memory suffices for with a probability of over one half."""
    calibration: CalibrationSummary | None = None
    """Trials that the figures rest on; null where they are general knowledge of the machine's
    kind."""
    seconds: float
    """What working it out took, s."""
    rows: list[SweepRow]
    """The best of them."""
    cost: CampaignCost | None = None
    """What a campaign over the space with the usual budget would cost; null where nothing fits."""
    gain: CampaignGain | None = None
    """What such a campaign would find beyond the prediction; null where nothing fits."""
