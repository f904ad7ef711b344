"""What is asked: of a campaign, and of the service before anything runs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from autotune.schemas import notation
from autotune.schemas.shapes import MachineChoice, ModelChoice, StrategyShape
from autotune.schemas.spaces import SpaceSpec
from autotune.schemas.wire import EvaluatorName, Objective, Positive, Wire

Tokens = Annotated[
    float,
    Field(gt=0),
    BeforeValidator(notation.tokens, json_schema_input_type=float | str),
]
"""A number of tokens: `300e9`, or `"300B"`."""


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
