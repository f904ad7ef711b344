"""What is answered before anything runs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.schemas.questions import MachineShape, ModelShape, StrategyShape
from autotune.schemas.wire import Scalar, Wire


class Refusal(Wire):
    """Why a rule refuses, or warns of, a strategy; or how many of a space it removed."""

    rule: str
    reason: str
    count: int = 1
    severity: Literal["refuse", "warn"] = "refuse"


class SpaceReport(Wire):
    """Counts of a space. `layouts` counts strategies that differ in more than GAS: what there is
    to try. `refusals` gives for each rule how many raw points it removes, most first."""

    model: ModelShape
    machine: MachineShape
    dimensions: dict[str, list[Scalar]]
    raw: int
    legal: int
    fitting: int
    layouts: int
    global_batch_sizes: list[int]
    refusals: list[Refusal]
    warnings: list[str] = Field(default_factory=list)


class DryRun(Wire):
    """What a campaign would do. `trials_affordable`: predicted trials that the budget buys."""

    space: SpaceReport
    node_hours_per_trial: float
    node_hours_budget: float | None
    node_hours_expected: float
    trials_affordable: int


class Prediction(Wire):
    """Predicted figures of one strategy; all None or empty where it is illegal."""

    model: ModelShape
    machine: MachineShape
    strategy: StrategyShape
    legal: bool
    reasons: list[Refusal]
    fits: bool | None = None
    data_parallel: int | None = None
    global_batch_size: int | None = None
    iteration_time_s: float | None = None
    tokens_per_s: float | None = None
    tokens_per_s_per_gpu: float | None = None
    model_tflops_per_gpu: float | None = None
    hardware_tflops_per_gpu: float | None = None
    mfu: float | None = None
    hfu: float | None = None
    memory_gib: float | None = None
    memory_limit_gib: float | None = None
    time_parts_s: dict[str, float] = Field(default_factory=dict)
    memory_parts_gib: dict[str, float] = Field(default_factory=dict)
