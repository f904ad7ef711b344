"""Trials and their measurements."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from autotune.schemas.choices import ChosenBy, TrialState
from autotune.schemas.wire import TrialPurpose, Wire
from search_spaces.strategy import Strategy

FAILURES = frozenset(TrialState) - {TrialState.OK, TrialState.PENDING, TrialState.CANCELLED}
"""The states that are counted and shown as failures."""

CONCLUSIVE = frozenset({TrialState.OK, TrialState.OOM, TrialState.TIMEOUT, TrialState.CRASHED})
"""The ends that the strategy itself may have caused."""

Routing = Literal["learned", "balanced"]
"""How the experts of a token are chosen: by a learned router, or each in turn, so that all have as
many tokens."""


class TrialMetrics(Wire):
    """Metrics of one strategy at its own GAS.

    Model FLOPs count no recomputation, hardware FLOPs do; MFU and HFU are these over the machine's
    16-bit peak.
    """

    gradient_accumulation_steps: int
    """The strategy's own GAS."""
    global_batch_size: int
    """Samples of one optimizer step."""
    iteration_time_s: float
    """Median time of an optimizer step, s."""
    iteration_time_spread_s: float
    """Half the distance between the 10th and 90th percentile of that time, s."""
    measured: bool
    """Whether the time was measured at this GAS; otherwise derived from two other GAS values."""
    tokens_per_s: float
    """Tokens per second."""
    tokens_per_s_per_gpu: float
    """Tokens per second and GPU."""
    tokens_per_node_hour: float
    """Tokens per node-hour."""
    tokens_per_joule: float | None = None
    """Tokens per joule of all nodes, hosts included; null if the machine's power is unknown."""
    energy_sampled: bool = False
    """Whether the GPUs' part of that energy was sampled; otherwise it is predicted."""
    model_tflops_per_gpu: float
    """Model FLOPs of each GPU, TFLOP/s."""
    hardware_tflops_per_gpu: float
    """Hardware FLOPs of each GPU, TFLOP/s."""
    mfu: float | None
    """Model FLOPs over the peak, 0 to 1; null where the peak is not known."""
    hfu: float | None
    """Hardware FLOPs over the peak, 0 to 1; null where the peak is not known."""
    peak_memory_gib: float | None
    """Peak memory of the fullest rank, GiB; null where it is not known."""
    peak_allocated_gib: float | None = None
    """What torch's allocator gave out of that peak, GiB; null where it is not known."""
    loss: float | None
    """Loss of the last iteration, nats per token; null for a simulated trial."""
    first_losses: list[float | None] = Field(default_factory=list)
    """Losses of the first 20 iterations in order, warm-up included, nats per token; null for one
    that is not a number, empty if they were not read."""
    trainer_parameters: int | None = None
    """Parameters of the model as counted by the trainer; null if it does not report them."""
    model_parameters: int | None = None
    """Parameters of the requested model, from which metrics are computed; null if the trainer does
    not report its own."""
    confirmed: list[str] = Field(default_factory=list)
    """Names of the strategy that the trainer reported with the requested value."""
    routing: Routing | None = None
    """Whether the router chose each token's experts, or tokens were dealt out evenly; null for a
    model without experts, and if the trainer does not report it."""


class Accumulation(Wire):
    """Iteration time of one layout at one GAS."""

    gradient_accumulation_steps: int
    """Micro-batches per replica and optimizer step (GAS)."""
    global_batch_size: int
    """Samples of one optimizer step."""
    iteration_time_s: float
    """Time of an optimizer step, s: the median of the measurements, or derived from other GAS
    values."""
    tokens_per_s: float
    """Tokens per second."""
    measured: bool
    """Whether it was measured at this GAS."""
    iteration_times_s: list[float] = Field(default_factory=list)
    """Time of each measured iteration, s; empty if none was measured."""


class Expectation(Wire):
    """Prediction of a trial before it ran.

    The median time and memory are the trial's `predicted_iteration_time_s` and
    `predicted_memory_gib`.
    """

    objective: float
    """The campaign's objective at the median time."""
    iteration_time_low_s: float
    """Lower end of the 80 % interval of the measured iteration time, s."""
    iteration_time_high_s: float
    """Upper end of that interval, s."""
    fit_probability: float
    """Probability that it fits into memory."""
    node_hours: float
    """Node-hours of a full run."""
    best_so_far: float | None
    """Objective of the best layout so far; null if there was none."""
    probability_better: float | None
    """Probability that this trial is better than the best so far, if it fits; null if there was
    none."""
    chosen_by: ChosenBy | None = None
    """What chose it, in another search than `calibrated`; null if that search or the campaign chose
    it."""


class Trial(Wire):
    """One short training run.

    All metrics are those of `strategy` as it ran.
    """

    id: int
    """Unique in the service."""
    campaign_id: int
    """Campaign that it belongs to."""
    number: int
    """Counts from 1 within the campaign."""
    purpose: TrialPurpose
    """Its purpose."""
    strategy: Strategy
    """The strategy that ran."""
    stands_for_nodes: int | None = None
    """Nodes of the layout for which it stands in; null if it ran in full."""
    num_layers: int | None = None
    """Layers that it ran with, on proportionally fewer stages and nodes; null if it ran with all
    layers."""
    token: str
    """Name of its directory under the service's `trials/`."""
    state: TrialState
    """State of the trial."""
    phase: Literal["waiting", "running"] | None = None
    """While pending: whether it waits for nodes or runs."""
    phase_reason: str = ""
    """Why it waits, in words; for a running trial, why its end may be unknown (the scheduler does
    not answer); for an imported one, where it was read."""
    job_id: str | None = None
    """The scheduler's id of its job; null without one."""
    simulated: bool
    """Whether it was simulated by the cost model."""
    created_at: datetime
    """When it was created."""
    started_at: datetime | None
    """When it got its nodes; null until then."""
    finished_at: datetime | None
    """When it ended; null until then."""
    duration_s: float | None
    """Time from start to end, s; null until it ended."""
    node_hours: float | None
    """Node-hours; null until it ended."""
    predicted_iteration_time_s: float | None
    """Median prediction of the time of an optimizer step before it ran, s."""
    predicted_memory_gib: float | None
    """Median prediction of the fullest rank's peak memory before it ran, GiB."""
    expected: Expectation | None = None
    """Further predictions; null for trials of an earlier version."""
    metrics: TrialMetrics | None
    """Its metrics; null unless it succeeded."""
    accumulations: list[Accumulation]
    """Iteration times at each measured GAS, and at its own."""
    peak_memory_gib_by_rank: list[float]
    """Peak memory of each rank, GiB; empty where it is not known."""
    gpu_joules_per_token: float | None = None
    """Energy of the GPUs alone during the measured iterations at all measured GAS values, J per
    token; null if not sampled."""
    energy_note: str = ""
    """How the energy was sampled, or why it was not."""
    error: str | None
    """Why it failed, in words; null if it did not fail."""
    log_path: str | None
    """File of its log on the service's machine; null if there is none."""
    host: str | None
    """Nodes that it ran on; null where not known."""
    versions: dict[str, str]
    """Package versions of its environment."""

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(f"<trial {self.number} of campaign {self.campaign_id} {self.state}>")

    @property
    def withdrawn(self) -> bool:
        """Whether it was cancelled before it had any node, so that it does not count."""
        return self.state is TrialState.CANCELLED and not self.node_hours


class TrialPage(Wire):
    """A page of trials."""

    items: list[Trial]
    """Trials of this page."""
    next: str | None = None
    """Cursor of the next page; null on the last."""
