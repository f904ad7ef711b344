"""Scaling studies: given layouts, measured on given numbers of nodes."""

from __future__ import annotations

from pydantic import Field

from autotune.schemas.choices import ScalingKind
from autotune.schemas.shapes import StrategyShape
from autotune.schemas.wire import Positive, Wire

MOST_STUDIED = 4
MOST_WIDTHS = 50


class StudySpec(Wire):
    """A scaling study, instead of a search: each strategy is measured on each number of nodes, at
    its own accumulation."""

    kinds: list[ScalingKind] = Field(["strong", "weak"], min_length=1, max_length=2)
    """`strong`: the same global batch on all nodes; `weak`: a batch in proportion to the nodes."""
    strategies: list[StrategyShape] = Field(default_factory=list, max_length=MOST_STUDIED)
    """Layouts, each with the global batch for strong scaling, which is also that of weak scaling on
    the strategy's own nodes."""
    like: Positive | None = None
    """Campaign whose recommended strategy is used if no `strategies` are given."""
    nodes: list[Positive] = Field(default_factory=list, max_length=MOST_WIDTHS)
    """Numbers of nodes; default: halves and doubles of each strategy's own, within the campaign's
    `nodes`."""


class StudiedStrategy(Wire):
    """A planned trial of a scaling study."""

    strategy: StrategyShape
    """The layout on a number of nodes, with the accumulation for its batch."""
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
    """Trials of a scaling study, fewest nodes first."""

    trials: list[StudiedStrategy]
    """Its trials, in their order."""
    omitted: list[str]
    """What cannot be measured, and why, one sentence each."""
