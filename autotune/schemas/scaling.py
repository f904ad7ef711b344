"""How one layout scales over nodes."""

from __future__ import annotations

from pydantic import Field

from autotune.schemas.choices import ScalingKind, TrialState
from autotune.schemas.wire import Wire
from search_spaces.strategy import Strategy


class ScaledStrategy(Wire):
    """The layout on one number of nodes."""

    num_nodes: int
    """Nodes."""
    gpus: int
    """GPUs of these nodes."""
    strategy: Strategy
    """The layout there."""
    global_batch_size: int
    """Samples of one optimizer step."""
    iteration_time_s: float
    """Time of an optimizer step, s: measured if `measured`, otherwise the predicted median."""
    iteration_time_low_s: float
    """Lower end of its 80 % interval, s."""
    iteration_time_high_s: float
    """Upper end of its 80 % interval, s."""
    measured: bool
    """Whether a trial timed it."""
    tokens_per_s: float
    """Tokens per second."""
    efficiency: float
    """Rate per GPU relative to the fewest nodes; 1 there."""
    efficiency_low: float
    """Lower end of its 80 % interval."""
    efficiency_high: float
    """Upper end of its 80 % interval."""
    fit_probability: float
    """Probability that it fits into memory; 1 if it was measured."""


class UnscaledStrategy(Wire):
    """A number of nodes on which the layout failed."""

    num_nodes: int
    """Nodes."""
    strategy: Strategy
    """The layout there."""
    state: TrialState
    """State of the last trial there."""


class ScalingSeries(Wire):
    """Scaling of one kind, of one layout."""

    kind: ScalingKind
    """`strong`: the same global batch on all nodes; `weak`: a batch in proportion to the nodes."""
    strategy: Strategy
    """The requested layout, with its nodes and batch."""
    points: list[ScaledStrategy]
    """The layout on each number of nodes, fewest first, without those that failed."""
    failed: list[UnscaledStrategy] = Field(default_factory=list)
    """Numbers of nodes on which trials failed."""
    omitted: dict[int, str]
    """Number of nodes, and why the layout cannot run there."""
    sentence: str
    """The efficiency on the most nodes, in words."""
