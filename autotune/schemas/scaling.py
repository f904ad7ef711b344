"""How one layout scales over nodes."""

from __future__ import annotations

from pydantic import Field

from autotune.schemas.calibrations import CalibrationSummary
from autotune.schemas.choices import ScalingKind, TrialState
from autotune.schemas.requests import PredictionQuery
from autotune.schemas.shapes import MachineShape, ModelShape, StrategyShape
from autotune.schemas.studies import MOST_WIDTHS
from autotune.schemas.wire import Positive, Wire


class ScalingQuery(PredictionQuery):
    """A strategy, and the numbers of nodes on which its layout is looked at."""

    nodes: list[Positive] = Field(default_factory=list, max_length=MOST_WIDTHS)
    """Numbers of nodes on which the layout is looked at; empty: halves and doubles of the
    strategy's own."""


class ScaledStrategy(Wire):
    """The layout on one number of nodes."""

    num_nodes: int
    """Nodes."""
    gpus: int
    """GPUs of these nodes."""
    strategy: StrategyShape
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
    """Tokens trained in a second."""
    efficiency: float
    """Rate for each GPU over that on the fewest nodes; 1 there."""
    efficiency_low: float
    """Lower end of its 80 % interval."""
    efficiency_high: float
    """Upper end of its 80 % interval."""
    fit_probability: float
    """Probability that memory suffices; 1 where it was timed."""


class UnscaledStrategy(Wire):
    """The layout on a number of nodes on which no step could be timed."""

    num_nodes: int
    """Nodes."""
    strategy: StrategyShape
    """The layout there."""
    state: TrialState
    """How the last trial ended that tried."""


class ScalingSeries(Wire):
    """Scaling of one kind, of one layout."""

    kind: ScalingKind
    """With the same global batch on all nodes (`strong`), or with one in proportion to the nodes
    (`weak`)."""
    strategy: StrategyShape
    """The layout as it was asked about, with the nodes and the batch that it has."""
    points: list[ScaledStrategy]
    """The layout on each number of nodes, fewest first, but for those that `failed`."""
    failed: list[UnscaledStrategy] = Field(default_factory=list)
    """What was tried and could not be timed."""
    omitted: dict[int, str]
    """Number of nodes, and why the layout cannot run there."""
    sentence: str
    """The efficiency on the most nodes, in words."""


class ScalingStudy(Wire):
    """Strong and weak scaling of one layout."""

    model: ModelShape
    """The model in full."""
    machine: MachineShape
    """The machine in full."""
    strategy: StrategyShape
    """The strategy that was asked about."""
    calibration: CalibrationSummary | None = None
    """Trials that the figures rest on; null where they are general knowledge of the machine's kind,
    or a campaign's own trials."""
    campaign_id: int | None = None
    """The campaign whose trials it rests on and whose measured steps it holds; null where it rests
    on none."""
    simulated: bool = False
    """Whether those steps come from the cost model and no machine."""
    series: list[ScalingSeries]
    """Strong and weak scaling; one alone where the layout can run in no other way."""
