"""Why a campaign's best won, what lies beyond its space, and why nothing ran."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.schemas.shapes import StrategyShape
from autotune.schemas.wire import Wire
from search_spaces.dimension import Scalar


class ExplainedStrategy(Wire):
    """Time and memory of one strategy by part.

    The parts are predicted by the campaign's calibration and scaled so that they add up to the
    whole, of which `time_origin` and `memory_origin` say whether it was measured, derived from what
    the layout took at other accumulations, projected from fewer nodes, or predicted.

    `relative_cost` is what a token takes (time, node-hours or energy, by the objective) over what
    it takes the winner. `sentence` says what it loses against the winner and to what; the winner's
    own, what takes most of its step.
    """

    role: Literal["winner", "runner_up", "baseline"]
    strategy: StrategyShape
    global_batch_size: int
    iteration_time_s: float
    time_origin: Literal["measured", "derived", "projected", "predicted"]
    time_parts_s: dict[str, float]
    relative_cost: float
    memory_gib: float
    memory_origin: Literal["measured", "derived", "projected", "predicted"]
    memory_parts_gib: dict[str, float]
    fit_probability: float
    sentence: str


class SuggestedChange(Wire):
    """A campaign to submit next: this one's request with some fields set otherwise.

    `fields` are `nodes`, and dimensions as `space.…`, with all their values.
    """

    fields: dict[str, int | str | list[Scalar]]
    strategy: StrategyShape
    fit_probability: float
    sentence: str


class SpaceEdges(Wire):
    """Whether the best has an extreme value of some dimension, and what is predicted beyond.

    `suggestion` is None where nothing beyond is predicted to be better and to fit.
    """

    sentence: str
    suggestion: SuggestedChange | None


class FailureCause(Wire):
    """Why no trial has succeeded: what those that ran out of memory are believed to need, and
    changed requests of which something probably fits, the least change first."""

    sentence: str
    need_low_gib: float | None
    need_high_gib: float | None
    suggestions: list[SuggestedChange]


class Explanation(Wire):
    """What a campaign's trials have taught, worked out once for each state of them.

    `strategies` are the winner, its runners-up and the baseline; empty while nothing has succeeded,
    and then `failures` says why. `memory_limit_gib` is what of a GPU's `gpu_memory_gib` can be
    used. `sentences` are the whole in at most three.
    """

    campaign_id: int
    simulated: bool
    memory_limit_gib: float
    gpu_memory_gib: float
    strategies: list[ExplainedStrategy]
    edges: SpaceEdges | None = Field(
        None, description="None where the best is not of the campaign's space"
    )
    failures: FailureCause | None = None
    sentences: list[str]
