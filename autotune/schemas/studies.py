"""What a scaling study asks: given layouts on given numbers of nodes, each measured."""

from __future__ import annotations

from pydantic import Field

from autotune.schemas.choices import ScalingKind
from autotune.schemas.shapes import StrategyShape
from autotune.schemas.wire import Positive, Wire

MOST_STUDIED = 4
MOST_WIDTHS = 50


class StudySpec(Wire):
    """A scaling study, which a campaign makes instead of a search: each strategy is measured on
    each number of nodes, at its own accumulation."""

    kinds: list[ScalingKind] = Field(["strong", "weak"], min_length=1, max_length=2)
    """With the same global batch on all nodes (`strong`), with one in proportion to the nodes
    (`weak`), or both."""
    strategies: list[StrategyShape] = Field(default_factory=list, max_length=MOST_STUDIED)
    """Layouts, each with the global batch that strong scaling keeps and that weak scaling has on
    the strategy's own nodes."""
    like: Positive | None = None
    """The campaign whose recommended strategy is taken, where no `strategies` are given."""
    nodes: list[Positive] = Field(default_factory=list, max_length=MOST_WIDTHS)
    """Numbers of nodes; where none are given, halves and doubles of each strategy's own, within
    the campaign's `nodes`."""


class StudiedStrategy(Wire):
    """What a scaling study would measure."""

    strategy: StrategyShape
    """The layout on a number of nodes, with the accumulation that makes its batch."""
    gpus: int
    """GPUs of these nodes."""
    global_batch_size: int
    """Samples of one optimizer step."""
    iteration_time_s: float
    """Predicted time of an optimizer step, s."""
    memory_gib: float
    """Predicted peak memory of the fullest GPU, GiB."""
    fits: bool
    """Whether it is predicted to fit."""
    node_hours: float
    """Predicted node-hours of its trial."""


class StudyPlan(Wire):
    """What a scaling study would measure, the fewest nodes first."""

    trials: list[StudiedStrategy]
    """Its trials, in their order."""
    omitted: list[str]
    """What cannot be measured, and why: a sentence each."""
