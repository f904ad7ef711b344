"""Why the best is best, what lies beyond the space, or why nothing ran."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.schemas.predictions import LayoutChange
from autotune.schemas.wire import Wire
from search_spaces.strategy import Strategy

Role = Literal["winner", "runner_up", "baseline"]

Origin = Literal["measured", "derived", "projected", "predicted"]
"""Origin of a number: `measured`; `derived` from the same layout at other accumulations;
`projected` from fewer nodes; `predicted` by the calibrated cost model."""


class ExplainedStrategy(Wire):
    """Time and memory of one strategy by part.

    The parts are predicted by the campaign's calibration and scaled to add up to the total.
    """

    role: Role
    """Its role in the campaign."""
    strategy: Strategy
    """The strategy."""
    global_batch_size: int
    """Samples of one optimizer step."""
    iteration_time_s: float
    """Time of an optimizer step, s."""
    time_origin: Origin
    """Origin of the time: measured, derived from other accumulations, projected from fewer nodes,
    or predicted."""
    time_parts_s: dict[str, float]
    """Time by part (`products`, `attention`, `experts`, `elementwise`, `recomputation`,
    `tensor_parallel`, `context_parallel`, `all_to_all`, `bubble`, `pipeline_transfer`,
    `data_parallel`, `optimizer`, `host`, `stragglers`), s."""
    relative_cost: float
    """Cost per token (time, node-hours or energy, by the objective) relative to the best."""
    memory_gib: float
    """Peak memory of the fullest GPU, GiB."""
    memory_origin: Origin
    """Origin of the memory, like `time_origin`."""
    memory_parts_gib: dict[str, float]
    """Memory by part (`parameters`, `gradients`, `optimizer`, `experts`, `activations`,
    `routed_tokens`, `recomputation`, `logits`, `zero3_gather`, `fragmentation`, `overhead`),
    GiB."""
    fit_probability: float
    """Probability that it fits into memory."""
    sentence: str
    """The time it loses against the best, by part; for the best, the largest parts of its step."""


class FailureCause(Wire):
    """Why no trial has succeeded."""

    sentence: str
    """Reason in words."""
    need_low_gib: float | None
    """Lowest predicted memory of layouts that ran out of memory, GiB; null if none did."""
    need_high_gib: float | None
    """Highest predicted memory of these layouts, GiB; null if none did."""
    suggestions: list[LayoutChange]
    """Changed requests with which something probably fits, smallest change first."""


class Explanation(Wire):
    """Explanation of a campaign's results, computed once per state of its trials."""

    campaign_id: int
    """The campaign."""
    simulated: bool
    """Whether its results are simulated by the cost model."""
    memory_limit_gib: float
    """Usable memory of a GPU in predictions, GiB; trials may have used more."""
    gpu_memory_gib: float
    """Memory of a GPU, GiB."""
    strategies: list[ExplainedStrategy]
    """The best, its runners-up and the baseline; empty until a trial succeeded."""
    left_out: list[LayoutChange] = Field(default_factory=list)
    """Layouts outside the space that are predicted to be better than the best by at least 2 % and
    to fit, best first."""
    failures: FailureCause | None = None
    """Why no trial has succeeded; null if one has."""
    sentences: list[str]
    """Summary in at most three sentences."""
