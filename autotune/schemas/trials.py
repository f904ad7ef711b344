"""Trials: what ran, as what, and what it measured."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import Field

from autotune.html import facts
from autotune.schemas.shapes import StrategyShape
from autotune.schemas.wire import TrialPurpose, Wire
from search_spaces.strategy import Strategy


class TrialState(StrEnum):
    """`pending` is stored but not finished; the others are final."""

    PENDING = "pending"
    OK = "ok"
    OOM = "oom"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    NODE_FAIL = "node_fail"
    PREEMPTED = "preempted"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    LOST = "lost"


FAILURES = frozenset(TrialState) - {TrialState.OK, TrialState.PENDING, TrialState.CANCELLED}
"""The states that are counted and shown as failures."""


class TrialMetrics(Wire):
    """The figures of one strategy at its own GAS.

    `measured` is False where `iteration_time_s` follows from two other GAS values by the law.
    `model_tflops_per_gpu` counts no recomputation, `hardware_tflops_per_gpu` does; MFU and HFU are
    the same over the machine's 16-bit peak, None where that is not known. `peak_memory_gib` is the
    fullest rank's. `loss` is the last iteration's, where the trial trains for real.
    `tokens_per_joule` is of all nodes, hosts included: what the GPUs drew where `energy_sampled`,
    and otherwise predicted; None where the machine's power figures are not known.
    """

    gradient_accumulation_steps: int
    global_batch_size: int
    iteration_time_s: float
    iteration_time_spread_s: float
    measured: bool
    tokens_per_s: float
    tokens_per_s_per_gpu: float
    tokens_per_node_hour: float
    tokens_per_joule: float | None = None
    energy_sampled: bool = False
    model_tflops_per_gpu: float
    hardware_tflops_per_gpu: float
    mfu: float | None
    hfu: float | None
    peak_memory_gib: float | None
    loss: float | None


class Accumulation(Wire):
    """Iteration time at one GAS: seconds of each measured iteration, or predicted by the law."""

    gradient_accumulation_steps: int
    global_batch_size: int
    iteration_time_s: float
    tokens_per_s: float
    measured: bool
    iteration_times_s: list[float] = Field(default_factory=list)


class Expectation(Wire):
    """What was expected of a trial before it ran, by all that was known then.

    The median time and memory are the trial's `predicted_iteration_time_s` and
    `predicted_memory_gib`; `objective` is the campaign's, at that time. The interval holds what is
    measured in 80 % of cases. `fit_probability` is that memory suffices, `node_hours` what the
    trial takes if it runs to its end. `best_so_far` is the objective of the best layout measured by
    then, `probability_better` that this one is better if it fits; both None while there was none.
    """

    objective: float
    iteration_time_low_s: float
    iteration_time_high_s: float
    fit_probability: float
    node_hours: float
    best_so_far: float | None
    probability_better: float | None


class Trial(Wire):
    """One short training run. `number` counts from 1 within the campaign.

    While it is pending, `phase` says whether it waits for nodes or runs, and `phase_reason` why it
    waits; `job_id` is the scheduler's. `expected` is None where an earlier version started it.
    `gpu_joules_per_token` is what the GPUs alone drew through the measured iterations, at whatever
    GAS these ran; `energy_note` says how it was sampled, or why it was not.

    `strategy` is what ran, and all figures are its own. Where it ran for the same layout on more
    nodes, `stands_for_nodes` says on how many. Where it ran with fewer layers than the model has,
    `num_layers` says with how many: its pipeline and nodes are shorter by the same factor.
    """

    id: int
    campaign_id: int
    number: int
    purpose: TrialPurpose
    strategy: StrategyShape
    stands_for_nodes: int | None = None
    num_layers: int | None = None
    token: str
    state: TrialState
    phase: Literal["waiting", "running"] | None = None
    phase_reason: str = ""
    job_id: str | None = None
    simulated: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    duration_s: float | None
    node_hours: float | None
    predicted_iteration_time_s: float | None
    predicted_memory_gib: float | None
    expected: Expectation | None = None
    metrics: TrialMetrics | None
    accumulations: list[Accumulation]
    peak_memory_gib_by_rank: list[float]
    gpu_joules_per_token: float | None = None
    energy_note: str = ""
    error: str | None
    log_path: str | None
    host: str | None
    versions: dict[str, str]

    def _repr_html_(self) -> str:
        """Return it for a notebook."""
        figures = self.metrics
        origin = "simulated" if self.simulated else "measured"
        rate = "–" if figures is None else f"{figures.tokens_per_s:,.4g} tokens/s ({origin})"
        layout = Strategy(**self.strategy.model_dump()).short()
        pairs = [("state", str(self.state)), ("layout", layout), ("throughput", rate)]
        pairs += [("error", self.error)] if self.error else []
        return facts(f"Trial {self.number} of campaign {self.campaign_id}", pairs)

    @property
    def withdrawn(self) -> bool:
        """Whether it was cancelled before it had any node: as if it had not been asked for."""
        return self.state is TrialState.CANCELLED and not self.node_hours


class TrialPage(Wire):
    items: list[Trial]
    next: str | None = None
