"""How one layout scales over nodes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.schemas.calibrations import CalibrationSummary
from autotune.schemas.requests import PredictionQuery
from autotune.schemas.shapes import MachineShape, ModelShape, StrategyShape
from autotune.schemas.wire import Positive, Wire

MOST_WIDTHS = 50


class ScalingQuery(PredictionQuery):
    """A strategy, and the numbers of nodes on which its layout is looked at."""

    nodes: list[Positive] = Field(
        default_factory=list,
        max_length=MOST_WIDTHS,
        description="on which the layout is looked at; where none are given, halves and doubles of "
        "the strategy's own",
    )


class ScaledStrategy(Wire):
    """The layout on one number of nodes.

    `iteration_time_s` is measured if `measured`, otherwise predicted. `efficiency`: rate for each
    GPU over that on the fewest nodes. `…_low` and `…_high` end 80 % intervals.
    """

    num_nodes: int
    gpus: int
    strategy: StrategyShape
    global_batch_size: int
    iteration_time_s: float
    iteration_time_low_s: float
    iteration_time_high_s: float
    measured: bool
    tokens_per_s: float
    efficiency: float
    efficiency_low: float
    efficiency_high: float
    fit_probability: float


class ScalingSeries(Wire):
    """Scaling of one kind: `strong` with the same global batch, `weak` with one in proportion to
    the nodes. `omitted`: nodes on which the layout cannot run, and why."""

    kind: Literal["strong", "weak"]
    points: list[ScaledStrategy]
    omitted: dict[int, str]
    sentence: str


class ScalingStudy(Wire):
    """Strong and weak scaling of one layout. `campaign_id`, where given, is the campaign whose
    trials it rests on and whose measured steps it holds; `simulated` whether those are."""

    model: ModelShape
    machine: MachineShape
    strategy: StrategyShape
    calibration: CalibrationSummary | None = None
    campaign_id: int | None = None
    simulated: bool = False
    series: list[ScalingSeries]
