"""What the service keeps and answers: campaigns, trials, events, recommendations, profiles."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from autotune.html import facts
from autotune.schemas.requests import CampaignCreate, MachineShape, ModelShape, StrategyShape
from autotune.schemas.wire import Objective, TrialPurpose, Wire
from search_spaces.strategy import Strategy


class CampaignState(StrEnum):
    """`queued` waits for a runner; `running` and `confirming` are worked on; the rest rest."""

    QUEUED = "queued"
    RUNNING = "running"
    CONFIRMING = "confirming"
    PAUSED = "paused"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


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


class StartedFrom(Wire):
    """So many trials of an earlier campaign, which may have been deleted since."""

    campaign_id: int
    name: str
    trials: int
    deleted: bool = False


class StartWorth(Wire):
    """What a campaign's start from earlier trials was worth.

    Medians, over its `trials` that were timed, of the relative error of the time foreseen before
    the first of them: from general knowledge alone, and with the earlier trials.
    """

    trials: int
    error_without: float
    error_with: float


class FewNodes(Wire):
    """On how few nodes, or with how few of the model's layers, trials run that stand for more; None
    where none do. `reason` says in a sentence why so, `outcome` whether what was projected came
    true, once that is known."""

    nodes: int | None
    layers: int | None = None
    reason: str
    outcome: str = ""


class Campaign(Wire):
    """A campaign as it stands. `reason` says in a sentence why it paused, ended or failed.

    `started_from` is None until its search begins, and empty where it began from nothing; so is
    `screening` until then.
    """

    id: int
    name: str
    state: CampaignState
    reason: str
    simulated: bool
    request: CampaignCreate
    model: ModelShape
    machine: MachineShape
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    trials: int
    pending: int
    waiting: int = Field(0, description="those of `pending` that wait for nodes")
    failures: int
    confirmations: int
    node_hours: float
    best_trial: int | None = Field(
        None, description="number of the first trial of the layout that is recommended so far"
    )
    best_objective: float | None = Field(
        None, description="the recommended layout's figure: the median of its trials"
    )
    fastest_trial: int | None = Field(None, description="number of the fastest single trial")
    fastest_objective: float | None = Field(
        None, description="that trial's figure, which another run may not confirm"
    )
    started_from: list[StartedFrom] | None = None
    start_worth: StartWorth | None = None
    screening: FewNodes | None = None


class Ranked(Wire):
    """A strategy of the recommendation.

    `significant` is whether the best beats it by more than both spreads, None for the best itself.
    `keeps_headroom` is whether it left the memory that the campaign asks for.
    `joules_per_token` is of all nodes, hosts included; a prediction unless `energy_sampled` of its
    `metrics`; None where the machine's power figures are not known. `gpu_joules_per_token` is what
    its GPUs alone drew through the measured iterations, the median of its trials; None where that
    was not sampled.
    Where it was not measured on its own nodes, `projected_from_nodes` says from how many its
    `metrics` are projected, and `projected_from_layers` with how many layers, where not with all;
    it is then never `confirmed`.
    """

    rank: int
    trial_numbers: list[int]
    strategy: StrategyShape
    metrics: TrialMetrics
    predicted_iteration_time_s: float | None
    relative_to_best: float
    significant: bool | None
    confirmed: bool
    memory_headroom_gib: float | None
    failed_confirmation: bool = Field(
        False, description="it failed when it was run once more, and is ranked last"
    )
    keeps_headroom: bool = True
    joules_per_token: float | None = None
    gpu_joules_per_token: float | None = None
    projected_from_nodes: int | None = None
    projected_from_layers: int | None = None


ParetoCost = Literal["num_nodes", "joules_per_token"]


class FrontPoint(Wire):
    """A measured layout that none beats in both the rate and what it takes.

    `joules_per_token` is of all nodes, hosts included; a prediction unless `energy_sampled`; None
    where the machine's power figures are not known.
    """

    trial_numbers: list[int]
    strategy: StrategyShape
    tokens_per_s: float
    joules_per_token: float | None
    energy_sampled: bool
    confirmed: bool


class ParetoFront(Wire):
    """The front of tokens/s against one of the things that it takes; both rise along `points`."""

    against: ParetoCost
    points: list[FrontPoint]


class TrainingCost(Wire):
    """What training `tokens` tokens would take with the best strategy, from its measured rate.

    `assumed` is whether nobody has said how many tokens there will be.
    `energy_mwh` is of all nodes, hosts included: what the strategy's own GPUs drew where
    `energy_sampled`, and otherwise predicted from the machine's power figures as its trials have
    calibrated them; None where these are not known.
    """

    tokens: float
    iterations: int
    days: float
    node_hours: float
    energy_mwh: float | None
    energy_sampled: bool = False
    assumed: bool = False


class TrainingSaving(Wire):
    """What training `tokens` tokens with the best strategy saves against the baseline, at the
    global batch of the best where the baseline's trial tells of that; negative what it takes more.

    `energy_mwh` is of all nodes, hosts included; None where it is not known of both.
    `repaid_after_tokens` are those after which it has saved the node-hours that the campaign spent;
    None where it saves none.
    """

    tokens: float
    days: float
    node_hours: float
    energy_mwh: float | None
    repaid_after_tokens: float | None


class LaunchNeed(Wire):
    """What a user has to give a launch script: a variable of the environment, and its meaning."""

    variable: str
    meaning: str


class LaunchScript(Wire):
    """The script that trains with the best strategy where its trials ran.

    With nothing in `needs` it runs as it is. `remark` says in a sentence what it trains on then,
    and for how long.
    """

    file: str
    needs: list[LaunchNeed]
    remark: str


class Baseline(Wire):
    """The layout that a campaign measured first.

    `given` is whether it is the user's own, and not a customary one. `metrics` are at its own GAS,
    the median of its trials; None where it gave none. `comparison` says in a sentence how the best
    stands against it, or what became of it.
    """

    given: bool
    trial_number: int
    strategy: StrategyShape
    state: TrialState
    metrics: TrialMetrics | None
    comparison: str


class Neighbour(Wire):
    """A layout that differs from the best in one dimension, by the next value of the space.

    `step` says in words what differs. `relative_to_best` is its rate over the best's: measured
    where `state` is ok, predicted where it is None, and None where its trial failed; low and high
    are the ends of the 80 % interval. `fit_probability` is that memory suffices, with the headroom
    that was asked for; 1 or 0 where a trial has shown it.
    """

    dimension: str
    step: str
    strategy: StrategyShape
    state: Literal["ok", "oom", "failed"] | None
    relative_to_best: float | None
    relative_low: float | None
    relative_high: float | None
    fit_probability: float


class SpaceStanding(Wire):
    """How sure it is that the recommended layout is the best of its space.

    `expected_gain` is what is left to win: the share by which the rate would rise, on average, if
    the best of all were known. `near_best` of the neighbours are at most 2 % below it; half of them
    make a broad basin, a quarter or fewer a sharp peak. `sentence` says all of it.
    """

    probability_best: float
    expected_gain: float
    untried: int
    near_best: int
    surroundings: Literal["sharp peak", "ridge", "broad basin"] | None
    neighbours: list[Neighbour]
    sentence: str


class Recommendation(Wire):
    """The answer of a campaign; `provisional` while it still runs or its best is unconfirmed.

    `speedup_over_baseline` is the best's objective over the baseline's (tokens for a second, a
    GPU's second, a node-hour or a joule), at the global batch of the best where the baseline's
    trial tells of that; None where there is no such figure.
    """

    campaign_id: int
    provisional: bool
    simulated: bool
    objective: Objective
    best: Ranked
    runners_up: list[Ranked]
    standing: SpaceStanding | None = Field(
        None, description="None where the best is not of the campaign's space"
    )
    pareto: list[ParetoFront] = Field(default_factory=list)
    baseline: Baseline | None = None
    speedup_over_baseline: float | None = None
    training: TrainingCost
    saving: TrainingSaving | None = Field(
        None, description="None where the baseline has no figures, or is the best itself"
    )
    accumulations: list[Accumulation]
    trials: int
    failures: int
    node_hours: float
    caveats: list[str]
    artefacts: list[str] = Field(description="file names, each downloadable")
    launch: LaunchScript | None = Field(None, description="the one of `artefacts` to start with")


class Event(Wire):
    """Sent over SSE; `id` grows by one for each change and survives restarts."""

    id: int
    campaign_id: int
    kind: Literal["campaign", "trial", "recommendation"]
    campaign: Campaign | None = None
    trial: Trial | None = None


class CampaignPage(Wire):
    items: list[Campaign]
    next: str | None = Field(None, description="cursor of the next page; None on the last")


class TrialPage(Wire):
    items: list[Trial]
    next: str | None = None


class ProfileSummary(Wire):
    """A cluster profile that a campaign may name.

    Attributes:
        source: the file that it was read from; empty for one that comes with autotune.
        problem: why it cannot be used; empty where it can.
    """

    name: str
    description: str = ""
    machine: str = Field("", description="of the catalog, that it belongs to; empty for any")
    program: str = ""
    source: str = ""
    problem: str = ""


class ProfileDetail(ProfileSummary):
    """The same with all that it says, table by table as in its file."""

    content: dict[str, Any]
