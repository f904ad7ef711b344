"""What a request holds: models, machines, spaces, strategies, campaigns."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from autotune.schemas import notation
from autotune.schemas.wire import EvaluatorName, Objective, Positive, Wire
from search_spaces.dimension import LARGEST_WHOLE, Scalar
from search_spaces.strategy import Precision
from search_spaces.transformer import ActivationCheckpointing


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


Dimension = Annotated[
    Literal["auto"] | Range | list[Scalar] | Scalar, BeforeValidator(notation.dimension)
]
"""A dimension is fixed (`4`), a list (`[1, 2, 4]`), a range, or `"auto"`; or a text of these, as
`autotune.schemas.notation` reads it."""

Switch = Annotated[
    Literal["auto"] | Range | list[Scalar] | Scalar, BeforeValidator(notation.switch)
]
"""A dimension that is on or off."""

Tokens = Annotated[
    float,
    Field(gt=0),
    BeforeValidator(notation.tokens, json_schema_input_type=float | str),
]
"""A number of tokens: `300e9`, or `"300B"`."""


class BatchBounds(Wire):
    """Bounds of the global batch size in samples; equal ones fix it, none leave it free."""

    minimum: Positive | None = None
    maximum: Positive | None = None


BatchChoice = Annotated[
    Positive | BatchBounds,
    BeforeValidator(notation.global_batch, json_schema_input_type=int | BatchBounds | str),
]


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
    sequence_parallel: Switch | None = None
    flash_attention: Switch | None = None
    virtual_stages: Dimension | None = None
    precision: Dimension | None = None
    global_batch_size: BatchChoice | None = None


Count = Annotated[int, Field(gt=0, le=LARGEST_WHOLE)]
"""A larger one is a slip, and too large for arithmetic."""


class StrategyShape(Wire):
    """One strategy (see `search_spaces.strategy.Strategy`)."""

    tensor_parallel: Count
    pipeline_parallel: Count
    micro_batch_size: Count
    gradient_accumulation_steps: Count
    zero_stage: Annotated[int, Field(ge=0, le=3)]
    num_nodes: Count
    activation_checkpointing: ActivationCheckpointing = "full"
    sequence_parallel: bool = False
    flash_attention: bool = True
    virtual_stages: Count = 1
    precision: Precision = "bf16"


ModelChoice = str | ModelShape
"""A preset ("gpt-22b"), a bare size ("13B"), or a shape."""
MachineChoice = str | MachineShape


class Budget(Wire):
    """When a campaign ends; whichever comes first. Confirmations come on top of `max_trials`."""

    max_trials: Positive = 30
    max_node_hours: Annotated[float, Field(gt=0)] | None = None
    deadline: datetime | None = None
    stop_early: bool = Field(
        True,
        description="end the search once it is not worth going on: nothing untried is likely to be "
        "better by 1 %, or by the account of `train_tokens`; no runner-up is then measured again "
        "that is not worth it either",
    )
    train_tokens: Tokens | None = Field(
        None,
        description="tokens of the training that the layout is for: the search ends once the next "
        "trial costs more node-hours than it is expected to save over them; more energy, where the "
        "objective is tokens_per_joule",
    )


class ProtocolSpec(Wire):
    """How each trial measures, and how many of the best are measured once more."""

    warmup_iterations: Annotated[int, Field(ge=0, le=100)] = 1
    measured_iterations: Annotated[int, Field(ge=1, le=1000)] = Field(
        3,
        description="timed at each GAS at the least; of iterations of 20 s and more "
        "two that agree are enough",
    )
    most_iterations: Annotated[int, Field(ge=1, le=1000)] = Field(
        10,
        description="timed at each GAS at most, while the spread is large; "
        "never fewer than `measured_iterations`",
    )
    target_spread: Annotated[float, Field(gt=0, le=1)] = Field(
        0.01,
        description="standard error of the median iteration time, as a share of it, "
        "at which a GAS is measured well enough",
    )
    give_up_below: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.8,
        description="share of the best trial's rate below which a trial of the search ends early; "
        "0: never",
    )
    time_limit_s: Annotated[float, Field(gt=0, le=86400)] = 1200.0
    confirmations: Annotated[int, Field(ge=0, le=10)] = 3


class SlurmChoice(Wire):
    """How trials go to Slurm. The profile is named, and never given: its text runs in every job."""

    profile: Annotated[str, Field(min_length=1, max_length=100)] = Field(
        description="a cluster profile of the service, as GET /profiles lists them"
    )
    mode: Literal["sbatch", "pilot"] = Field(
        "sbatch", description="one job for each trial, or steps inside one allocation"
    )


NO_BASELINE = "none"
"""Instead of a layout: the campaign does without a baseline."""

BaselineChoice = (
    Annotated[
        Annotated[str, Field(max_length=20_000)] | StrategyShape,
        Field(
            description="the layout that is measured first and that the result is told against: "
            'a strategy, "tp=8,pp=4,mbs=1,zero=1", or a line of Megatron\'s arguments; '
            f'"{NO_BASELINE}" does without; where nothing is said, a customary one'
        ),
    ]
    | None
)


ScreenNodes = Annotated[
    Literal["auto", "off"] | Positive,
    Field(
        description="on how few nodes trials of the search may run that stand for the same layout "
        "on more, with fewer replicas; the best are confirmed on all of theirs"
    ),
]


ScreenLayers = Annotated[
    Literal["off"] | Positive,
    Field(
        description="with how many of the model's layers trials of the search run that stand for "
        "the same layout with all, in pipelines and on nodes fewer by the same factor"
    ),
]


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
    slurm: SlurmChoice | None = Field(
        None, description="with the slurm evaluator, and only with it"
    )
    objective: Objective = "tokens_per_s"
    min_headroom_gib: Annotated[float, Field(ge=0)] = Field(
        0.0,
        description="memory that the fullest GPU is to have left: what leaves less is not "
        "searched for, and is ranked last",
    )
    space: SpaceSpec = SpaceSpec()
    baseline: BaselineChoice = None
    budget: Budget = Budget()
    protocol: ProtocolSpec = ProtocolSpec()
    tokens: Tokens | None = Field(
        None,
        description="training tokens that the recommendation's days and energy are for, unless "
        "`budget.train_tokens` says it; where nothing is said, 20 for each parameter, and 300e9 "
        "at most",
    )
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    screen_nodes: ScreenNodes = "auto"
    screen_layers: ScreenLayers = "off"
    fresh: bool = Field(
        False, description="start from nothing, not from earlier trials of the machine"
    )
    time_scale: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="simulated evaluator: seconds waited for each simulated second"
    )


class BudgetExtension(Wire):
    """More of the budget; what is left out stays."""

    max_trials: Positive | None = None
    max_node_hours: Annotated[float, Field(gt=0)] | None = None
    deadline: datetime | None = None


class ProgramChoice(Wire):
    """What is to run the trials: its program decides what is legal. With the simulated evaluator
    whatever one of the programs can do is."""

    evaluator: EvaluatorName = "simulated"
    slurm: SlurmChoice | None = Field(
        None, description="with the slurm evaluator, and only with it"
    )


class SpaceQuery(ProgramChoice):
    model: ModelChoice
    machine: MachineChoice
    nodes: Positive = 1
    space: SpaceSpec = SpaceSpec()


NO_CALIBRATION = "none"
"""Instead of a name: what is generally known of the machine's kind."""

CalibrationChoice = Annotated[
    str | None,
    Field(
        description=f'the name of a calibration of this machine, or "{NO_CALIBRATION}"; where '
        "nothing is said, the newest of the machine"
    ),
]


class PredictionQuery(ProgramChoice):
    model: ModelChoice
    machine: MachineChoice
    strategy: StrategyShape
    calibration: CalibrationChoice = None
    min_headroom_gib: Annotated[float, Field(ge=0)] = Field(
        0.0, description="memory of the fullest GPU that is to be left for it to count as fitting"
    )
