"""The wire models: what the service takes and answers, shared by server, client and command line.

Importable without SQLAlchemy, DeepHyper, FastAPI or torch.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from search_spaces.strategy import Precision
from search_spaces.transformer import ActivationCheckpointing

EvaluatorName = Literal["simulated", "local"]
Objective = Literal["tokens_per_s", "tokens_per_s_per_gpu"]
Positive = Annotated[int, Field(gt=0)]


class Wire(BaseModel):
    """Base of all: unknown fields are refused, not dropped, and so are infinity and NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


# --- what is asked -------------------------------------------------------------------------------


class ModelShape(Wire):
    """A transformer's shape; what is left out follows GPT-3 (`ffn_hidden_size` = 4 x hidden)."""

    name: str = "custom"
    num_layers: Positive
    hidden_size: Positive
    num_attention_heads: Positive
    num_query_groups: Positive | None = None
    ffn_hidden_size: Positive | None = None
    gated_mlp: bool = False
    seq_length: Positive = 2048
    vocab_size: Positive = 51200
    tied_embeddings: bool = True


class MachineShape(Wire):
    """A machine in full, as in a machine file (see `search_spaces.machine.Machine`)."""

    name: str
    description: str = ""
    gpu: str
    gpus_per_node: Positive
    max_nodes: Positive
    memory_gib: Annotated[float, Field(gt=0)]
    peak_tflops: Annotated[float, Field(gt=0)] | None
    memory_bandwidth_gb_per_s: Annotated[float, Field(gt=0)]
    intra_node_gb_per_s: Annotated[float, Field(gt=0)]
    inter_node_gb_per_s: Annotated[float, Field(gt=0)]
    gpu_idle_watt: Annotated[float, Field(ge=0)] | None = None
    gpu_max_watt: Annotated[float, Field(gt=0)] | None = None
    host_watt: Annotated[float, Field(ge=0)] | None = None
    sources: tuple[str, ...] = ()


class Range(Wire):
    """All values from `minimum` to `maximum` in steps of `step`."""

    minimum: Positive
    maximum: Positive
    step: Positive = 1


Scalar = int | bool | str
Dimension = Literal["auto"] | Range | list[Scalar] | Scalar
"""A dimension is fixed (`4`), a list (`[1, 2, 4]`), a range, or `"auto"`."""


class BatchBounds(Wire):
    """Bounds of the global batch size in samples; equal ones fix it, none leave it free."""

    minimum: Positive | None = None
    maximum: Positive | None = None


class SpaceSpec(Wire):
    """What may be tried. Starts from a ready space where one is named; each field overrides it."""

    preset: str | None = Field(None, description='a ready space of the catalog, such as "table-v"')
    tensor_parallel: Dimension | None = None
    pipeline_parallel: Dimension | None = None
    micro_batch_size: Dimension | None = None
    gradient_accumulation_steps: Dimension | None = None
    zero_stage: Dimension | None = None
    num_nodes: Dimension | None = None
    activation_checkpointing: Dimension | None = None
    sequence_parallel: Dimension | None = None
    flash_attention: Dimension | None = None
    virtual_stages: Dimension | None = None
    precision: Dimension | None = None
    global_batch_size: Positive | BatchBounds | None = None


class StrategyShape(Wire):
    """One strategy (see `search_spaces.strategy.Strategy`)."""

    tensor_parallel: Positive
    pipeline_parallel: Positive
    micro_batch_size: Positive
    gradient_accumulation_steps: Positive
    zero_stage: Annotated[int, Field(ge=0, le=3)]
    num_nodes: Positive
    activation_checkpointing: ActivationCheckpointing = "full"
    sequence_parallel: bool = False
    flash_attention: bool = True
    virtual_stages: Positive = 1
    precision: Precision = "bf16"


ModelChoice = str | ModelShape
"""A preset ("gpt-22b"), a bare size ("13B"), or a shape."""
MachineChoice = str | MachineShape


class Budget(Wire):
    """When a campaign ends; whichever comes first. Confirmations come on top of `max_trials`."""

    max_trials: Positive = 30
    max_node_hours: Annotated[float, Field(gt=0)] | None = None
    deadline: datetime | None = None


class ProtocolSpec(Wire):
    """How each trial measures, and how many of the best are measured once more."""

    warmup_iterations: Annotated[int, Field(ge=0, le=100)] = 1
    measured_iterations: Annotated[int, Field(ge=1, le=1000)] = 3
    time_limit_s: Annotated[float, Field(gt=0, le=86400)] = 1200.0
    confirmations: Annotated[int, Field(ge=0, le=10)] = 3


class CampaignCreate(Wire):
    """One question: how should this model be laid out on these nodes?"""

    name: str = Field("", max_length=200)
    model: ModelChoice
    machine: MachineChoice
    nodes: Positive = Field(1, description="the most nodes that a strategy may use")
    pool_nodes: Positive | None = Field(
        None, description="nodes that trials may hold at the same time; `nodes` where not given"
    )
    evaluator: EvaluatorName
    objective: Objective = "tokens_per_s"
    space: SpaceSpec = SpaceSpec()
    budget: Budget = Budget()
    protocol: ProtocolSpec = ProtocolSpec()
    tokens: Annotated[float, Field(gt=0)] = Field(
        300e9, description="training tokens that the recommendation's days and energy are for"
    )
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    time_scale: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="simulated evaluator: seconds waited for each simulated second"
    )


class BudgetExtension(Wire):
    """More of the budget; what is left out stays."""

    max_trials: Positive | None = None
    max_node_hours: Annotated[float, Field(gt=0)] | None = None
    deadline: datetime | None = None


class SpaceQuery(Wire):
    model: ModelChoice
    machine: MachineChoice
    nodes: Positive = 1
    space: SpaceSpec = SpaceSpec()


class PredictionQuery(Wire):
    model: ModelChoice
    machine: MachineChoice
    strategy: StrategyShape


# --- what is answered ----------------------------------------------------------------------------


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
    warnings: list[str] = []


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
    time_parts_s: dict[str, float] = {}
    memory_parts_gib: dict[str, float] = {}


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
    CANCELLED = "cancelled"
    LOST = "lost"


class TrialMetrics(Wire):
    """See `autotune.measurement.Metrics`."""

    gradient_accumulation_steps: int
    global_batch_size: int
    iteration_time_s: float
    iteration_time_spread_s: float
    measured: bool
    tokens_per_s: float
    tokens_per_s_per_gpu: float
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
    iteration_times_s: list[float] = []


class Trial(Wire):
    """One short training run. `number` counts from 1 within the campaign."""

    id: int
    campaign_id: int
    number: int
    purpose: Literal["search", "confirmation"]
    strategy: StrategyShape
    token: str
    state: TrialState
    simulated: bool
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    duration_s: float | None
    node_hours: float | None
    predicted_iteration_time_s: float | None
    predicted_memory_gib: float | None
    metrics: TrialMetrics | None
    accumulations: list[Accumulation]
    peak_memory_gib_by_rank: list[float]
    error: str | None
    log_path: str | None
    host: str | None
    versions: dict[str, str]


class Campaign(Wire):
    """A campaign as it stands. `reason` says in a sentence why it paused, ended or failed."""

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
    failures: int
    confirmations: int
    node_hours: float
    best_trial: int | None = Field(None, description="number of the best trial so far")
    best_objective: float | None = None


class Ranked(Wire):
    """A strategy of the recommendation. `significant` is whether the best beats it by more than
    both spreads; None for the best itself."""

    rank: int
    trial_numbers: list[int]
    strategy: StrategyShape
    metrics: TrialMetrics
    predicted_iteration_time_s: float | None
    relative_to_best: float
    significant: bool | None
    confirmed: bool
    memory_headroom_gib: float | None


class TrainingCost(Wire):
    """What training `tokens` tokens would take with the best strategy, from its measured rate.

    `energy_mwh` is predicted from the machine's power figures; None where they are not known.
    """

    tokens: float
    iterations: int
    days: float
    node_hours: float
    energy_mwh: float | None


class Recommendation(Wire):
    """The answer of a campaign; `provisional` while it still runs or its best is unconfirmed."""

    campaign_id: int
    provisional: bool
    simulated: bool
    objective: Objective
    best: Ranked
    runners_up: list[Ranked]
    training: TrainingCost
    accumulations: list[Accumulation]
    trials: int
    failures: int
    node_hours: float
    caveats: list[str]
    artefacts: list[str] = Field(description="file names, each downloadable")


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


class FieldProblem(Wire):
    field: str
    value: Any = None
    reason: str
    valid: str = ""


class Problem(Wire):
    """RFC 9457 `application/problem+json`."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] = []
