"""What is asked: of a campaign, and of the service before anything runs."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from autotune.schemas import notation
from autotune.schemas.choices import EvaluatorName, Objective, SearchMethod, Surrogate
from autotune.schemas.shapes import MachineChoice, ModelChoice, StrategyShape
from autotune.schemas.spaces import SpaceSpec
from autotune.schemas.studies import StudySpec
from autotune.schemas.wire import Description, Label, Positive, Wire, storable

Tokens = Annotated[
    float,
    Field(gt=0),
    BeforeValidator(notation.tokens, json_schema_input_type=float | str),
]
"""A number of tokens: `300e9`, or `"300B"`."""


class Budget(Wire):
    """When a campaign ends; whichever comes first. Confirmations come on top of `max_trials`."""

    max_trials: Positive = 30
    """Trials of the search at most, the baseline among them."""
    max_node_hours: Annotated[float, Field(gt=0)] | None = None
    """Node-hours of all trials at most, the confirmations among them; null: no bound."""
    deadline: datetime | None = None
    """When the last trial may start; null: no bound."""
    stop_early: bool = True
    """End the search once it is not worth going on: nothing untried is likely to be better by 1 %,
    or by the account of `train_tokens`; no runner-up is then measured again that is not worth it
    either."""
    train_tokens: Tokens | None = None
    """Tokens of the training that the layout is for: the search ends once the next trial costs more
    node-hours than it is expected to save over them; more energy, where the objective is
    `tokens_per_joule`."""


class ProtocolSpec(Wire):
    """How each trial measures, and how many of the best are measured once more."""

    warmup_iterations: Annotated[int, Field(ge=0, le=100)] = 1
    """Iterations at each GAS that are run and not timed."""
    measured_iterations: Annotated[int, Field(ge=1, le=1000)] = 3
    """Iterations timed at each GAS at the least; of iterations of 20 s and more two that agree are
    enough."""
    most_iterations: Annotated[int, Field(ge=1, le=1000)] = 10
    """Iterations timed at each GAS at most, while the spread is large; never fewer than
    `measured_iterations`."""
    target_spread: Annotated[float, Field(gt=0, le=1)] = 0.01
    """Standard error of the median iteration time, as a share of it, at which a GAS is measured
    well enough."""
    give_up_below: Annotated[float, Field(ge=0, lt=1)] = 0.8
    """Share of the best trial's rate below which a trial of the search ends early; 0: never."""
    time_limit_s: Annotated[float, Field(gt=0, le=86400)] = 1200.0
    """Seconds that a trial may run, from when it has its nodes."""
    confirmations: Annotated[int, Field(ge=0, le=10)] = 3
    """How many of the best layouts are measured once more when the search has ended."""


class SlurmChoice(Wire):
    """How trials go to Slurm. The profile is named, and never given: its text runs in every job."""

    profile: Annotated[Label, Field(min_length=1, max_length=100)]
    """A cluster profile of the service, as `GET /profiles` lists them."""
    mode: Literal["sbatch", "pilot"] = "sbatch"
    """One job for each trial (`sbatch`), or steps inside one allocation (`pilot`)."""


RAY_ADDRESS = r"^((ray://)?[A-Za-z0-9_.:\[\]-]+:[0-9]{1,5})?$"
"""HOST:PORT or ray://HOST:PORT, or nothing."""


def _address_of_ray(text: str) -> str:
    if re.fullmatch(RAY_ADDRESS, text) is None:
        reason = "not the address of a Ray cluster, which is HOST:PORT or ray://HOST:PORT"
        raise PydanticCustomError("not_an_address", "{reason}", {"reason": reason})
    return text


class RayChoice(Wire):
    """Which Ray cluster trials go to: its address, or a profile's that says it."""

    address: Annotated[
        str,
        Field(max_length=200, json_schema_extra={"pattern": RAY_ADDRESS}),
        AfterValidator(_address_of_ray),
    ] = ""
    """Of the cluster's head: `10.0.0.1:6379`, or `ray://10.0.0.1:10001` from a machine that is no
    node of it; empty: the profile's."""
    profile: Annotated[Label, Field(max_length=100)] = ""
    """A cluster profile of the service, as `GET /profiles` lists them; empty: none."""


NO_BASELINE = "none"
"""Instead of a layout: the campaign does without a baseline."""

BaselineChoice = (
    Annotated[str, Field(max_length=20_000), AfterValidator(storable)] | StrategyShape | None
)
ScreenNodes = Literal["auto", "off"] | Positive
ScreenLayers = Literal["off"] | Positive


LARGEST_ADAPTER = 65_536
AdapterText = Annotated[str, Field(max_length=LARGEST_ADAPTER), AfterValidator(storable)]


class AdapterFile(Wire):
    """An adapter's own file, with the user's files that its `base` names."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,49}$")]
    """Name of the file without `.toml`."""
    text: AdapterText
    """Its content: TOML."""
    folder: Annotated[str, Field(max_length=4096, pattern=r"^/"), AfterValidator(storable)]
    """Absolute path of its folder on the machines that run the trials: scripts lie there."""
    files: dict[Description, AdapterText] = Field(default_factory=dict, max_length=20)
    """Contents of the files that `base` names, by the paths that it has."""


AdapterChoice = Annotated[Label, Field(max_length=50)] | AdapterFile


class CampaignCreate(Wire):
    """One question: how should this model be laid out on these nodes?"""

    name: Label = ""
    """What people call it; empty: it has its number alone."""
    model: ModelChoice
    """A model of the catalog (`gpt-175b`), a bare size (`13B`), or a shape."""
    machine: MachineChoice
    """A machine of the catalog (`frontier`), or one in full."""
    nodes: Positive = 1
    """The most nodes that a strategy may use."""
    pool_nodes: Positive | None = None
    """Nodes that trials may hold at the same time; null: `nodes`."""
    evaluator: EvaluatorName = "simulated"
    """What runs the trials: the cost model with noise (`simulated`), this machine (`local`), or a
    cluster (`slurm`, `ray`). Nothing is run where it is left out."""
    slurm: SlurmChoice | None = None
    """With the slurm evaluator, and only with it."""
    ray: RayChoice | None = None
    """With the ray evaluator, and only with it."""
    adapter: AdapterChoice = ""
    """A trainer of the service, as `autotune adapter list` has them, or an adapter's file; empty:
    the bundled one, or that of the profile. The command in a file runs in every trial, as the
    service's user, so a service that a group shares takes files of admins alone unless its settings
    allow others'."""
    objective: Objective = "tokens_per_s"
    """What is to be as high as possible."""
    min_headroom_gib: Annotated[float, Field(ge=0)] = 0.0
    """Memory that the fullest GPU is to have left, GiB: what leaves less is not searched for, and
    is ranked last."""
    space: SpaceSpec = SpaceSpec()
    """What may be tried; automatic where nothing is said."""
    baseline: BaselineChoice = None
    """The layout that is measured first and that the result is told against: a strategy,
    `"tp=8,pp=4,mbs=1,zero=1"`, or a line of Megatron's arguments; `"none"` does without; null: a
    customary one."""
    budget: Budget = Budget()
    """When it ends."""
    protocol: ProtocolSpec = ProtocolSpec()
    """How each trial measures."""
    tokens: Tokens | None = None
    """Training tokens that the recommendation's days and energy are for, unless
    `budget.train_tokens` says it; where nothing is said, 20 for each parameter."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seed of all that is drawn at random."""
    search: SearchMethod = "calibrated"
    """What chooses the trials. All but `calibrated` run every layout in full and end with the
    budget, whatever `budget.stop_early` says: they are there to compare with."""
    surrogate: Surrogate = "forest"
    """Of the search `deephyper`, and only with it."""
    screen_nodes: ScreenNodes = "auto"
    """On how few nodes trials of the search may run that stand for the same layout on more, with
    fewer replicas; the best are confirmed on all of theirs."""
    screen_layers: ScreenLayers = "off"
    """With how many of the model's layers trials of the search run that stand for the same layout
    with all, in pipelines and on nodes fewer by the same factor."""
    fresh: bool = False
    """Start from nothing, not from earlier trials of the machine."""
    private: bool = False
    """Let nobody else see it, of a service that a group shares, but admins."""
    own_runner: bool = False
    """Let a runner of its owner's alone bring it forward (`autotune runner --as-me`), so that its
    trials run as its owner."""
    notify: bool = False
    """Send its owner an e-mail when it ends or pauses, at the address that an admin has given the
    user."""
    study: StudySpec | None = None
    """Instead of a search: how given layouts scale over nodes, measured."""
    time_scale: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Simulated evaluator: seconds waited for each simulated second."""


class CampaignRepeat(Wire):
    """The question of another campaign, searched in another way."""

    like: Positive
    """Id of that campaign. All but its search, name and deadline is taken over."""
    search: SearchMethod
    """What chooses the trials. `calibrated` starts without earlier trials, so that it knows none of
    the campaign that it is compared with."""
    surrogate: Surrogate = "forest"
    """Of the search `deephyper`, and only with it."""


class BudgetExtension(Wire):
    """More of the budget; what is left out stays."""

    max_trials: Positive | None = None
    """Trials of the search at most, in all; null: as it was."""
    max_node_hours: Annotated[float, Field(gt=0)] | None = None
    """Node-hours at most, in all; null: as it was."""
    deadline: datetime | None = None
    """When the last trial may start; null: as it was."""


class CampaignChange(Wire):
    """What is to be another; what is left out stays."""

    name: Label | None = None
    """What people call it; null: as it was."""
    private: bool | None = None
    """Whether its owner and admins alone see it; null: as it was."""


class ProgramChoice(Wire):
    """What is to run the trials: its program decides what is legal. With the simulated evaluator
    whatever one of the programs can do is."""

    evaluator: EvaluatorName = "simulated"
    """What is to run the trials. Only where it is given as `simulated` does an answer rest on
    simulated trials."""
    slurm: SlurmChoice | None = None
    """With the slurm evaluator, and only with it."""
    ray: RayChoice | None = None
    """With the ray evaluator, and only with it."""
    adapter: AdapterChoice = ""
    """A trainer of the service, as `autotune adapter list` has them, or an adapter's file; empty:
    the bundled one, or that of the profile."""


class SpaceQuery(ProgramChoice):
    """A space, and what it is for."""

    model: ModelChoice
    """A model of the catalog (`gpt-175b`), a bare size (`13B`), or a shape."""
    machine: MachineChoice
    """A machine of the catalog (`frontier`), or one in full."""
    nodes: Positive = 1
    """The most nodes that a strategy may use."""
    space: SpaceSpec = SpaceSpec()
    """What may be tried; automatic where nothing is said."""


NO_CALIBRATION = "none"
"""Instead of a name: what is generally known of the machine's kind."""


class PredictionQuery(ProgramChoice):
    """A strategy, and what its prediction rests on."""

    model: ModelChoice
    """A model of the catalog (`gpt-175b`), a bare size (`13B`), or a shape."""
    machine: MachineChoice
    """A machine of the catalog (`frontier`), or one in full."""
    strategy: StrategyShape
    """The strategy that is asked about."""
    calibration: Label | None = None
    """Name of a calibration of this machine, or `"none"` for what is generally known of the
    machine's kind; null: the newest of measured trials of the machine, and of simulated ones where
    the evaluator is given as simulated."""
    min_headroom_gib: Annotated[float, Field(ge=0)] = 0.0
    """Memory of the fullest GPU that is to be left for a strategy to count as fitting, GiB."""
