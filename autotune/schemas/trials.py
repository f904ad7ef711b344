"""Trials: what ran, as what, and what it measured."""

from __future__ import annotations

from datetime import datetime
from statistics import fmean
from typing import Any, Literal

from pydantic import Field

from autotune.html import facts
from autotune.schemas.choices import TrialState
from autotune.schemas.shapes import StrategyShape
from autotune.schemas.wire import TrialPurpose, Wire
from autotune.wording import figure
from search_spaces.strategy import Strategy

FAILURES = frozenset(TrialState) - {TrialState.OK, TrialState.PENDING, TrialState.CANCELLED}
"""The states that are counted and shown as failures."""


class TrialMetrics(Wire):
    """The figures of one strategy at its own GAS.

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
    """Half of the distance between the 10th and the 90th percentile of that time, s."""
    measured: bool
    """False where the time follows from two other GAS values by the law of accumulation."""
    tokens_per_s: float
    """Tokens trained in a second."""
    tokens_per_s_per_gpu: float
    """Tokens trained in a second on each GPU."""
    tokens_per_node_hour: float
    """Tokens trained in an hour on each node."""
    tokens_per_joule: float | None = None
    """Tokens trained with a joule of all nodes, hosts included; null where the machine's power
    figures are not known."""
    energy_sampled: bool = False
    """Whether the GPUs' part of that energy is what they drew; otherwise it is predicted."""
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
    loss: float | None
    """Loss of the last iteration, nats for a token; null where the trial does not train for
    real."""
    trainer_parameters: int | None = None
    """Parameters of the model as its trainer counts them; null where it does not tell."""
    model_parameters: int | None = None
    """Parameters of the model that the trial was to train, with which figures are worked out; null
    where its trainer does not tell its own."""


class Accumulation(Wire):
    """Iteration time of one layout at one GAS."""

    gradient_accumulation_steps: int
    """Micro-batches of each replica in one optimizer step (GAS)."""
    global_batch_size: int
    """Samples of one optimizer step."""
    iteration_time_s: float
    """Time of an optimizer step, s: the median of those measured, or what the law of accumulation
    says."""
    tokens_per_s: float
    """Tokens trained in a second."""
    measured: bool
    """Whether it was measured at this GAS."""
    iteration_times_s: list[float] = Field(default_factory=list)
    """Time of each measured iteration, s; empty where none was."""


class Expectation(Wire):
    """What was expected of a trial before it ran, by all that was known then.

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
    """Probability that memory suffices."""
    node_hours: float
    """What the trial takes if it runs to its end."""
    best_so_far: float | None
    """Objective of the best layout measured by then; null while there was none."""
    probability_better: float | None
    """Probability that this one is better than that if it fits; null while there was none."""


class Trial(Wire):
    """One short training run.

    `strategy` is what ran, and all figures are its own.
    """

    id: int
    """Unique in the service."""
    campaign_id: int
    """Campaign that it belongs to."""
    number: int
    """Counts from 1 within the campaign."""
    purpose: TrialPurpose
    """Why it was run."""
    strategy: StrategyShape
    """What ran."""
    stands_for_nodes: int | None = None
    """Nodes of the same layout that it stands for; null where it stands for itself."""
    num_layers: int | None = None
    """Layers that it ran with, of a model that has more: its pipeline and nodes are shorter by the
    same factor; null where it ran with all."""
    token: str
    """Name of its directory under the service's `trials/`."""
    state: TrialState
    """How it stands, or how it ended."""
    phase: Literal["waiting", "running"] | None = None
    """While it is pending: whether it waits for nodes or runs."""
    phase_reason: str = ""
    """Why it waits, in words; of one that runs, what keeps its end from being known."""
    job_id: str | None = None
    """The scheduler's name for it; null where there is none."""
    simulated: bool
    """Whether the cost model ran it and no machine."""
    created_at: datetime
    """When it was chosen."""
    started_at: datetime | None
    """When it had its nodes; null until then."""
    finished_at: datetime | None
    """When it ended; null until then."""
    duration_s: float | None
    """From its start to its end, s; null until then."""
    node_hours: float | None
    """Node-hours that it took; null until it ended."""
    predicted_iteration_time_s: float | None
    """Median prediction of the time of an optimizer step before it ran, s."""
    predicted_memory_gib: float | None
    """Median prediction of the fullest rank's peak memory before it ran, GiB."""
    expected: Expectation | None = None
    """What else was expected of it; null where an earlier version started it."""
    metrics: TrialMetrics | None
    """Its figures; null unless it went well."""
    accumulations: list[Accumulation]
    """Iteration times at each GAS that was measured, and at its own."""
    peak_memory_gib_by_rank: list[float]
    """Peak memory of each rank, GiB; empty where it is not known."""
    gpu_joules_per_token: float | None = None
    """Energy that the GPUs alone drew through the measured iterations, J for a token, at whatever
    GAS these ran; null where it was not sampled."""
    energy_note: str = ""
    """How the energy was sampled, or why it was not."""
    error: str | None
    """Why it failed, in words; null where it did not."""
    log_path: str | None
    """File of its log on the service's machine; null where there is none."""
    host: str | None
    """Nodes that it ran on; null where not known."""
    versions: dict[str, str]
    """Versions of what it ran with, by package."""

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """Print it in an interactive shell: in a line, not with all its fields."""
        printer.text(f"<trial {self.number} of campaign {self.campaign_id} {self.state}>")

    def _repr_html_(self) -> str:
        """Return it for a notebook."""
        figures = self.metrics
        origin = "simulated" if self.simulated else "measured"
        rate = "–" if figures is None else f"{figure(figures.tokens_per_s)} tokens/s ({origin})"
        layout = Strategy(**vars(self.strategy)).short()
        pairs = [("state", str(self.state)), ("layout", layout), ("throughput", rate)]
        pairs += [("error", self.error)] if self.error else []
        return facts(f"Trial {self.number} of campaign {self.campaign_id}", pairs)

    @property
    def withdrawn(self) -> bool:
        """Whether it was cancelled before it had any node: as if it had not been asked for."""
        return self.state is TrialState.CANCELLED and not self.node_hours


class NodePower(Wire):
    """Power of all GPUs of one node over time, the host left out."""

    node: str
    """Name of the node."""
    samples: int
    """Samples that were taken; where there are fewer points, each is the mean of several."""
    at_s: list[float]
    """Time of each point since the trial's start by the node's clock, s."""
    watts: list[float]
    """Power of the node's GPUs at each point, W."""

    @property
    def mean_watts(self) -> float:
        """Mean of the points, W."""
        return fmean(self.watts)


class EnergyWindow(Wire):
    """A stretch of a trial from whose samples its energy was computed."""

    start_s: float
    """Its first sample since the trial's start, s."""
    end_s: float
    """Its last sample since the trial's start, s."""


class TrialPower(Wire):
    """Power of the GPUs of each of a trial's nodes over time, hosts left out.

    A trial samples it about once a second. Of a node at most 600 points are kept, of more than 60
    nodes fewer: means over equal stretches of time.
    """

    nodes: list[NodePower] = Field(default_factory=list)
    """Nodes that were sampled; empty where none was."""
    energy_windows: list[EnergyWindow] = Field(default_factory=list)
    """The measured iterations, from which `gpu_joules_per_token` was computed; empty where it was
    not."""
    note: str = ""
    """How power was sampled, or why it was not."""


class TrialPage(Wire):
    """A page of trials."""

    items: list[Trial]
    """Trials of this page."""
    next: str | None = None
    """Cursor of the next page; null on the last."""
