"""Predictions of single strategies, and of what a campaign costs and gains."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from autotune.schemas.campaigns import StartedFrom
from autotune.schemas.scaling import ScalingSeries
from autotune.schemas.shapes import Subject
from autotune.schemas.wire import Wire
from search_spaces.dimensions import Scalar
from search_spaces.strategy import Strategy

LIKELY_TO_FIT = 0.5
"""Minimum probability of fitting of a layout that is taken to fit."""

SAFE_TO_FIT = 0.75
"""Probability of fitting from which on layouts are ranked only by their predicted rate."""


class BrokenRule(Wire):
    """A rule that a strategy breaks, and why; or how many strategies of a space break it."""

    rule: str
    """Name of the rule."""
    reason: str
    """The requirement, and how it is violated."""
    count: int = 1
    """Number of points or strategies that violate it."""
    severity: Literal["refuse", "warn"] = "refuse"
    """Whether a violation makes a strategy illegal (`refuse`) or only warns (`warn`)."""


FieldValue: TypeAlias = int | str | list[Scalar]
"""Value of a field of a request."""


class LayoutChange(Wire):
    """A layout with other values of some dimensions, compared with the layout as it is."""

    changes: dict[str, Scalar]
    """Dimensions to change, and what to set them to; the accumulation only if the batch changes."""
    fields: dict[str, FieldValue] = Field(default_factory=dict)
    """Fields of the request to change so that its space includes the layout (`nodes`, `space.…`
    with all values); empty outside a campaign or plan, and for a layout of the space."""
    strategy: Strategy
    """The changed layout."""
    global_batch_size: int
    """Samples of one optimizer step."""
    iteration_time_s: float
    """Predicted time of an optimizer step, s."""
    relative: float
    """Predicted objective over the unchanged layout's, if that had enough memory."""
    relative_low: float
    """Lower end of its 80 % interval."""
    relative_high: float
    """Upper end of its 80 % interval."""
    memory_gib: float
    """Predicted peak memory of the fullest GPU, GiB."""
    fit_probability: float
    """Probability that it fits into memory."""
    sentence: str
    """Summary in words."""


class Prediction(Subject):
    """Prediction of one strategy; all values are null or empty if it is illegal."""

    strategy: Strategy
    """The requested strategy."""
    legal: bool
    """Whether it is legal."""
    reasons: list[BrokenRule]
    """Violated rules, refusals first."""
    fits: bool | None = None
    """Whether it probably fits into memory."""
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
    """Tokens per second."""
    tokens_per_s_per_gpu: float | None = None
    """Tokens per second and GPU."""
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
    """Usable memory of a GPU, GiB."""
    fit_probability: float | None = None
    """Probability that it fits into memory."""
    joules_per_token: float | None = None
    """Energy of all nodes, hosts included, J per token; null if the machine's power is unknown."""
    power_trials: int = 0
    """Number of trials with sampled power on which the energy is based."""
    started_from: list[StartedFrom] = Field(default_factory=list)
    """Earlier trials of the machine and trainer on which the prediction is based."""
    simulated: bool = False
    """Whether those are simulated trials."""
    time_parts_s: dict[str, float] = Field(default_factory=dict)
    """Time of a step by part (`products`, `attention`, `elementwise`, `recomputation`,
    `tensor_parallel`, `bubble`, `pipeline_transfer`, `data_parallel`, `optimizer`, `host`,
    `stragglers`), s."""
    memory_parts_gib: dict[str, float] = Field(default_factory=dict)
    """Peak memory by part (`parameters`, `gradients`, `optimizer`, `activations`, `recomputation`,
    `logits`, `zero3_gather`, `fragmentation`, `overhead`), GiB."""
    memory_sentence: str = ""
    """Summary of the memory, and whether it fits."""
    memory_changes: list[LayoutChange] = Field(default_factory=list)
    """The smallest changes that make it fit, highest rate per node first; empty if it fits."""
    scaling: list[ScalingSeries] = Field(default_factory=list)
    """Strong and weak scaling over `over_nodes`; only one of them if the layout cannot run the
    other way."""


class CampaignCost(Wire):
    """Cost of a campaign that uses its whole budget; most end earlier."""

    trials: int
    """Trials of the search."""
    node_hours_per_trial: float
    """Node-hours of one trial of the search."""
    node_hours: float
    """Node-hours of all trials, including baseline, confirmations and knobs."""
    knob_starts: int = 0
    """Expected starts of knobs on the best predicted layout."""


class CampaignGain(Wire):
    """Expected gain over the best prediction.

    The reference is the best predicted strategy, or the next one if it does not fit.
    """

    rate_gain: float
    """Expected relative gain of the best strategy in the objective."""
    rate_gain_high: float
    """90th percentile of that gain."""
    probability_better: float
    """Probability that some other strategy is better by 1 % or more."""
    saved_share: float
    """Expected fraction of a training's cost saved by the best strategy."""
    node_hours_per_token: float
    """Node-hours per token with the best predicted strategy."""
    training_tokens: float | None = None
    """Training tokens of the request; null if not given."""
    training_node_hours: float | None = None
    """Node-hours of that training; null if no tokens are given."""
    saved_node_hours: float | None = None
    """Node-hours that the campaign is expected to save; null if no tokens are given."""
    break_even_tokens: float | None = None
    """Training tokens after which the campaign has paid for itself; null if no saving is
    expected."""
