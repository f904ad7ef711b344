"""Requests: campaigns, and predictions before anything runs."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from autotune.schemas import notation
from autotune.schemas.choices import EvaluatorName, Objective, SearchMethod, Surrogate
from autotune.schemas.shapes import MachineChoice, ModelChoice
from autotune.schemas.spaces import SpaceSpec
from autotune.schemas.wire import MOST_TOKENS, MOST_VALUES, Headroom, NodeHours, Positive, Wire
from search_spaces.fields import Description, Label, storable
from search_spaces.strategy import Strategy

_Tokens = Annotated[float, Field(ge=1, le=MOST_TOKENS)]
Tokens = Annotated[_Tokens, BeforeValidator(notation.tokens, json_schema_input_type=_Tokens | str)]
"""A number of tokens: `300e9`, or `"300B"`."""


class Budget(Wire):
    """Budget of a campaign: it ends at the first limit. Confirmations do not count against
    `max_trials`."""

    max_trials: Positive = 30
    """Maximum trials of the search, including the baseline."""
    max_node_hours: NodeHours | None = None
    """Maximum node-hours of all trials, including confirmations; null: no limit."""
    deadline: datetime | None = None
    """Time after which no trial starts; null: no limit."""
    stop_early: bool = True
    """End the search once another trial is not worth its cost: no untried layout is likely to be
    better by 1 %, or by the rule of `train_tokens`. The same rule decides which runners-up are
    confirmed."""
    train_tokens: Tokens | None = None
    """Tokens of the planned training: the search ends once the next trial costs more node-hours
    than it is expected to save over this training (energy, if the objective is
    `tokens_per_joule`)."""


class ProtocolSpec(Wire):
    """Measurement protocol of trials, and the number of confirmations."""

    warmup_iterations: Annotated[int, Field(ge=0, le=100)] = 1
    """Iterations discarded at the start of a trial."""
    measured_iterations: Annotated[int, Field(ge=1, le=1000)] = 3
    """Minimum iterations timed at each GAS; two iterations of 20 s or more that agree are
    enough."""
    most_iterations: Annotated[int, Field(ge=1, le=1000)] = 10
    """Maximum iterations timed at each GAS, while the spread is large; at least
    `measured_iterations`."""
    target_spread: Annotated[float, Field(gt=0, le=1)] = 0.01
    """Relative standard error of the median iteration time at which a GAS is measured well
    enough."""
    give_up_below: Annotated[float, Field(ge=0, lt=1)] = 0.8
    """Share of the best trial's rate below which a trial of the search ends early; 0: never."""
    time_limit_s: Annotated[float, Field(gt=0, le=86400)] = 1200.0
    """Time limit of a trial from when it has its nodes, s."""
    confirmations: Annotated[int, Field(ge=0, le=10)] = 3
    """Number of best layouts that are measured again after the search, the best of them twice
    unless trials are simulated."""


class SlurmChoice(Wire):
    """How trials run on Slurm. The profile is given by name only, because its text runs in every
    job."""

    profile: Annotated[Label, Field(min_length=1, max_length=100)]
    """Name of a cluster profile (`GET /profiles`)."""
    mode: Literal["sbatch", "pilot"] = "sbatch"
    """One job per trial (`sbatch`), or steps inside one allocation (`pilot`)."""


RAY_ADDRESS = r"^((ray://)?[A-Za-z0-9_.:\[\]-]+:[0-9]{1,5})?$"
"""HOST:PORT or ray://HOST:PORT, or nothing."""


def _address_of_ray(text: str) -> str:
    if re.fullmatch(RAY_ADDRESS, text) is None:
        reason = "not the address of a Ray cluster, which is HOST:PORT or ray://HOST:PORT"
        raise PydanticCustomError("not_an_address", "{reason}", {"reason": reason})
    return text


class RayChoice(Wire):
    """The Ray cluster of the trials: its address, or a profile with the address."""

    address: Annotated[
        str,
        Field(max_length=200, json_schema_extra={"pattern": RAY_ADDRESS}),
        AfterValidator(_address_of_ray),
    ] = ""
    """Address of the cluster's head: `10.0.0.1:6379`, or `ray://10.0.0.1:10001` from outside the
    cluster; empty: the profile's."""
    profile: Annotated[Label, Field(max_length=100)] = ""
    """Name of a cluster profile (`GET /profiles`); empty: none."""


NO_BASELINE = "none"
"""Instead of a layout: no baseline."""

BaselineChoice = (
    Annotated[str, Field(max_length=20_000), AfterValidator(storable)] | Strategy | None
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
    """Absolute path of its folder on the machines that run the trials, for scripts."""
    files: dict[Description, AdapterText] = Field(default_factory=dict, max_length=20)
    """Contents of the files that `base` names, by path."""


AdapterChoice = Annotated[Label, Field(max_length=50)] | AdapterFile


_Knobs = Literal["all"] | Annotated[list[Label], Field(max_length=MOST_VALUES)]
Knobs = Annotated[_Knobs, BeforeValidator(notation.knobs, json_schema_input_type=_Knobs | str)]
"""Names of knobs, `["overlap"]` or `"overlap,reduce_bucket"`, or `"all"`."""


class CampaignCreate(Wire):
    """A campaign: find the fastest layout of a model on these nodes."""

    name: Label = ""
    """Display name; may be empty."""
    model: ModelChoice
    """A model of the catalog (`gpt-175b`) or a bare size (`13B`), with fields that differ
    (`gpt-22b,seq=8192`); or a shape."""
    machine: MachineChoice
    """A machine of the catalog (`frontier`), or one in full."""
    nodes: Positive = 1
    """Maximum nodes of a strategy."""
    pool_nodes: Positive | None = None
    """Maximum nodes of all concurrent trials; null: `nodes`."""
    evaluator: EvaluatorName = "simulated"
    """Evaluator of the trials: the cost model with noise (`simulated`), this machine (`local`), or
    a cluster (`slurm`, `ray`)."""
    slurm: SlurmChoice | None = None
    """Settings of the slurm evaluator; only with it."""
    ray: RayChoice | None = None
    """Settings of the ray evaluator; only with it."""
    adapter: AdapterChoice = ""
    """Trainer: the name of an adapter (`GET /adapters`), or an adapter's file; empty: the bundled
    one, or the profile's. The command in a file runs in every trial as the service's user, so a
    shared service accepts files only from admins unless its settings allow all users."""
    objective: Objective = "tokens_per_s"
    """What is to be as high as possible."""
    min_headroom_gib: Headroom | None = None
    """Free memory required on the fullest GPU, GiB; strategies that leave less are not searched,
    and rank last. null: what a training needs in addition to a trial with a probability of 95 %,
    more for models with experts."""
    space: SpaceSpec = SpaceSpec()
    """The search space; dimensions default to automatic."""
    baseline: BaselineChoice = None
    """The baseline, which is measured first and compared with the result: a strategy,
    `"tp=8,pp=4,mbs=1,zero=1"`, or a line of Megatron arguments; `"none"`: no baseline; null: a
    default one."""
    budget: Budget = Budget()
    """Its budget."""
    protocol: ProtocolSpec = ProtocolSpec()
    """Measurement protocol of its trials."""
    tokens: Tokens | None = None
    """Training tokens for the recommendation's days and energy; default: `budget.train_tokens`,
    else 20 per parameter."""
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Random seed of the search and the trials."""
    search: SearchMethod = "calibrated"
    """Search method. All but `calibrated` are for comparison: they run every layout in full and
    ignore `budget.stop_early`."""
    surrogate: Surrogate = "forest"
    """Surrogate of the search `deephyper`; only with it."""
    screen_nodes: ScreenNodes = "auto"
    """Nodes on which the search measures layouts, with fewer replicas; the best are confirmed on
    all nodes."""
    screen_layers: ScreenLayers = "off"
    """Number of the model's layers with which the search measures layouts, on proportionally fewer
    stages and nodes."""
    knobs: Knobs = Field(default=[])
    """Knobs to try on the best layout once it is confirmed: `all` that change something there, or
    names (`autotune adapter show NAME --knobs`, `autotune profiles NAME --knobs`)."""
    knob_file: AdapterText = ""
    """The request's own knobs as TOML, `[knob.NAME]` as in a cluster profile. Their variables are
    set for trials, so a shared service accepts them as it accepts an adapter's file."""
    fresh: bool = False
    """Ignore earlier trials on the machine."""
    private: bool = False
    """Hide it from other users of a shared service, except admins."""
    own_runner: bool = False
    """Leave it to a runner of its owner (`autotune runner --as-me`), so that its trials run as the
    owner."""
    time_scale: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Simulated evaluator: real seconds per simulated second."""


class BudgetExtension(Wire):
    """A raised budget, or knobs to try; omitted fields stay unchanged."""

    max_trials: Positive | None = None
    """New maximum of trials of the search; null: unchanged."""
    max_node_hours: NodeHours | None = None
    """New maximum of node-hours; null: unchanged."""
    deadline: datetime | None = None
    """New deadline; null: unchanged."""
    knobs: Knobs | None = None
    """Knobs to try on the best layout, in addition to the campaign's; null: unchanged."""


class CampaignChange(Wire):
    """Fields to change; omitted fields stay unchanged."""

    name: Label | None = None
    """Display name; null: unchanged."""
    private: bool | None = None
    """Whether only its owner and admins see it; null: unchanged."""


class PredictionQuery(Wire):
    """A strategy to predict. The evaluator and trainer decide what is legal; with the simulated
    evaluator, a strategy is legal if any trainer can run it."""

    evaluator: EvaluatorName = "simulated"
    """Evaluator of the trials. Predictions use simulated trials only if it is `simulated`."""
    slurm: SlurmChoice | None = None
    """Settings of the slurm evaluator; only with it."""
    ray: RayChoice | None = None
    """Settings of the ray evaluator; only with it."""
    adapter: AdapterChoice = ""
    """Trainer: the name of an adapter (`GET /adapters`), or an adapter's file; empty: the bundled
    one, or the profile's."""
    model: ModelChoice
    """A model of the catalog (`gpt-175b`) or a bare size (`13B`), with fields that differ
    (`gpt-22b,seq=8192`); or a shape."""
    machine: MachineChoice
    """A machine of the catalog (`frontier`), or one in full."""
    strategy: Strategy
    """The strategy."""
    min_headroom_gib: Headroom = 0.0
    """Free memory required on the fullest GPU for a strategy to fit, GiB."""
    traits: dict[Label, bool | float | Label] = Field(default_factory=dict, max_length=50)
    """What the trainer does that no dimension states, instead of what its adapter declares:
    `dispatcher` (alltoall, deepep, hybridep), `routing` (balanced, natural), `cuda_graphs` (a share
    of the kernels), and the keys of an adapter's `[states]`."""
    over_nodes: list[Positive] = Field(default_factory=list, max_length=50)
    """Other numbers of nodes for the same layout, for `scaling`."""
