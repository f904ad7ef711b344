"""Why a campaign's best won, what lies beyond its space, and why nothing ran."""

from __future__ import annotations

from typing import Literal

from autotune.schemas.shapes import StrategyShape
from autotune.schemas.wire import Wire
from search_spaces.dimensions import Scalar


class ExplainedStrategy(Wire):
    """Time and memory of one strategy by part.

    The parts are predicted by the campaign's calibration and scaled so that they add up to the
    whole.
    """

    role: Literal["winner", "runner_up", "baseline"]
    """What it is to the campaign."""
    strategy: StrategyShape
    """The strategy."""
    global_batch_size: int
    """Samples of one optimizer step."""
    iteration_time_s: float
    """Time of an optimizer step, s."""
    time_origin: Literal["measured", "derived", "projected", "predicted"]
    """Whether that was measured, derived from what the layout took at other accumulations,
    projected from fewer nodes, or predicted."""
    time_parts_s: dict[str, float]
    """Time by part (`products`, `attention`, `elementwise`, `recomputation`, `tensor_parallel`,
    `bubble`, `pipeline_transfer`, `data_parallel`, `optimizer`, `host`, `stragglers`), s."""
    relative_cost: float
    """What a token takes (time, node-hours or energy, by the objective) over what it takes the
    winner."""
    memory_gib: float
    """Peak memory of the fullest GPU, GiB."""
    memory_origin: Literal["measured", "derived", "projected", "predicted"]
    """Where that is from, as of `time_origin`."""
    memory_parts_gib: dict[str, float]
    """Memory by part (`parameters`, `gradients`, `optimizer`, `activations`, `recomputation`,
    `logits`, `zero3_gather`, `overhead`), GiB."""
    fit_probability: float
    """Probability that memory suffices."""
    sentence: str
    """What it loses against the winner and to what; the winner's own: what takes most of its
    step."""


class SuggestedChange(Wire):
    """A campaign to submit next: this one's request with some fields set otherwise."""

    fields: dict[str, int | str | list[Scalar]]
    """`nodes`, and dimensions as `space.…`, with all their values."""
    strategy: StrategyShape
    """The best predicted of it."""
    fit_probability: float
    """Probability that memory suffices for that."""
    sentence: str
    """All of this in words."""


class SpaceEdges(Wire):
    """Whether the best has an extreme value of some dimension, and what is predicted beyond."""

    sentence: str
    """What lies at the edge, in words."""
    suggestion: SuggestedChange | None
    """What to ask next; null where nothing beyond is predicted to be better and to fit."""


class FailureCause(Wire):
    """Why no trial has succeeded."""

    sentence: str
    """Why, in words."""
    need_low_gib: float | None
    """Least that those that ran out of memory are believed to need, GiB; null where none did."""
    need_high_gib: float | None
    """Most that they are believed to need, GiB; null where none did."""
    suggestions: list[SuggestedChange]
    """Changed requests of which something probably fits, the least change first."""


class Explanation(Wire):
    """What a campaign's trials have taught, worked out once for each state of them."""

    campaign_id: int
    """The campaign."""
    simulated: bool
    """Whether its figures come from the cost model and no machine."""
    memory_limit_gib: float
    """Memory of a GPU that predictions use, GiB; what has run may have used more."""
    gpu_memory_gib: float
    """Memory of a GPU, GiB."""
    time_note: str = ""
    """Which part of the time rests on an assumed pipeline bubble; empty once trials measured it."""
    strategies: list[ExplainedStrategy]
    """The winner, its runners-up and the baseline; empty while nothing has succeeded."""
    edges: SpaceEdges | None = None
    """What lies beyond the space; null where the best is not of it."""
    failures: FailureCause | None = None
    """Why nothing has succeeded; null where something has."""
    sentences: list[str]
    """All of this in three sentences at most."""
