"""The answer of a campaign: its best strategies, what they cost, save, and stand against."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.schemas.choices import Objective, ParetoCost, TrainerName, TrialState
from autotune.schemas.shapes import StrategyShape
from autotune.schemas.trials import Accumulation, TrialMetrics
from autotune.schemas.wire import Wire


class Ranked(Wire):
    """A strategy of the recommendation."""

    rank: int
    """1 is the best."""
    trial_numbers: list[int]
    """Trials of its layout."""
    strategy: StrategyShape
    """The strategy."""
    metrics: TrialMetrics
    """Its figures, the median of its trials; projected where it was not measured on its own
    nodes."""
    predicted_iteration_time_s: float | None
    """Median prediction of the time of an optimizer step before it ran, s."""
    relative_to_best: float
    """Its objective over that of the best."""
    significant: bool | None
    """Whether the best beats it by more than both spreads; null for the best itself."""
    confirmed: bool
    """Whether it was measured once more, with success."""
    memory_headroom_gib: float | None
    """Memory that its fullest GPU has left, GiB; null where it is not known."""
    failed_confirmation: bool = False
    """Whether it failed when it was run once more; it is then ranked last."""
    keeps_headroom: bool = True
    """Whether it leaves the memory that the campaign asks for."""
    joules_per_token: float | None = None
    """Energy of all nodes, hosts included, J for a token: a prediction unless
    `metrics.energy_sampled`; null where the machine's power figures are not known."""
    gpu_joules_per_token: float | None = None
    """Energy that its GPUs alone drew through the measured iterations, J for a token, the median of
    its trials; null where it was not sampled."""
    projected_from_nodes: int | None = None
    """Nodes of the trials that its figures are projected from; null where it was measured on its
    own. What is projected is never `confirmed`."""
    projected_from_layers: int | None = None
    """Layers of the trials that its figures are projected from; null where they had all."""


class FrontPoint(Wire):
    """A measured layout that none beats in both the rate and what it takes."""

    trial_numbers: list[int]
    """Trials of the layout."""
    strategy: StrategyShape
    """The strategy."""
    tokens_per_s: float
    """Tokens trained in a second."""
    joules_per_token: float | None
    """Energy of all nodes, hosts included, J for a token: a prediction unless `energy_sampled`;
    null where the machine's power figures are not known."""
    energy_sampled: bool
    """Whether the GPUs' part of that energy is what they drew."""
    confirmed: bool
    """Whether it was measured once more, with success."""


class ParetoFront(Wire):
    """The front of the rate against one of the things that it takes."""

    against: ParetoCost
    """What the rate is held against."""
    points: list[FrontPoint]
    """Its layouts; the rate and what it takes both rise along them."""


class TrainingCost(Wire):
    """What a whole training would take with the best strategy, from its measured rate."""

    tokens: float
    """Tokens of the training."""
    iterations: int
    """Optimizer steps."""
    days: float
    """Days without interruption."""
    node_hours: float
    """Node-hours."""
    energy_mwh: float | None
    """Energy of all nodes, hosts included, MWh; null where the machine's power figures are not
    known."""
    gpu_energy_mwh: float | None = None
    """Energy of the GPUs alone, MWh: `energy_mwh` without the rest of the nodes; null where their
    power figures are not known."""
    energy_sampled: bool = False
    """Whether the GPUs' energy, alone and in `energy_mwh`, is what they drew; otherwise it is
    predicted."""
    assumed: bool = False
    """Whether nobody has said how many tokens there will be."""


class TrainingSaving(Wire):
    """What a whole training with the best strategy saves against the baseline.

    It is told at the global batch of the best where the baseline's trial tells of that; negative is
    what it takes more.
    """

    tokens: float
    """Tokens of the training."""
    days: float
    """Days that it saves."""
    node_hours: float
    """Node-hours that it saves."""
    energy_mwh: float | None
    """Energy of all nodes that it saves, hosts included, MWh; null where it is not known of
    both."""
    repaid_after_tokens: float | None
    """Tokens after which it has saved the node-hours that the campaign spent; null where it saves
    none."""


class LaunchNeed(Wire):
    """What a user has to give a launch script."""

    variable: str
    """Name of a variable of the environment."""
    meaning: str
    """What it has to say."""


class LaunchScript(Wire):
    """The script that trains with the best strategy where its trials ran.

    With nothing in `needs` it runs as it is. `remark` says in a sentence what it trains on then,
    and for how long.
    """

    file: str
    """Name of the script, one of the `artefacts`."""
    needs: list[LaunchNeed]
    """What has to be given; empty where it runs as it is."""
    remark: str
    """What it trains on as it is, and for how long, in a sentence."""


class TrainerOffer(Wire):
    """A trainer that the best strategy can be launched with, or why it cannot."""

    name: TrainerName
    """The trainer, as `artefacts.zip` takes it."""
    supported: bool
    """Whether it can train the model with this strategy."""
    reason: str
    """Why it cannot, in a sentence; empty where it can."""
    variables: list[LaunchNeed]
    """What its files read from the environment; empty where there are none."""


class Baseline(Wire):
    """The layout that a campaign measured first."""

    given: bool
    """Whether it is the user's own, and not a customary one."""
    trial_number: int
    """Its trial."""
    strategy: StrategyShape
    """The strategy."""
    state: TrialState
    """How its trial stands, or how it ended."""
    metrics: TrialMetrics | None
    """Its figures at its own GAS, the median of its trials; null where it gave none."""
    comparison: str
    """How the best stands against it, or what became of it, in a sentence."""


class Neighbour(Wire):
    """A layout that differs from the best in one dimension, by the next value of the space."""

    dimension: str
    """The dimension."""
    step: str
    """What differs, in words."""
    strategy: StrategyShape
    """The strategy."""
    state: Literal["ok", "oom", "failed"] | None
    """How its trial ended; null where it has none."""
    relative_to_best: float | None
    """Its rate over that of the best: measured where `state` is `ok`, predicted where it is null;
    null where its trial failed."""
    relative_low: float | None
    """Lower end of the 80 % interval of that ratio."""
    relative_high: float | None
    """Upper end of the 80 % interval of that ratio."""
    fit_probability: float
    """Probability that memory suffices with the headroom that was asked for; 1 or 0 where a trial
    has shown it."""


class SpaceStanding(Wire):
    """How sure it is that the recommended layout is the best of its space."""

    probability_best: float
    """Probability that it is the best."""
    expected_gain: float
    """What is left to win: the share by which the rate would rise, on average, if the best of all
    were known."""
    untried: int
    """Layouts of the space that have not run."""
    near_best: int
    """Neighbours that are at most 2 % below it."""
    surroundings: Literal["sharp peak", "ridge", "broad basin"] | None
    """Half of the neighbours near it make a broad basin, a quarter or fewer a sharp peak; null
    where it has no neighbours."""
    neighbours: list[Neighbour]
    """Layouts that differ from it in one dimension."""
    sentence: str
    """All of this in words."""


class Recommendation(Wire):
    """The answer of a campaign."""

    campaign_id: int
    """The campaign."""
    provisional: bool
    """Whether it may change: the campaign still runs, or its best is unconfirmed."""
    simulated: bool
    """Whether its figures come from the cost model and no machine."""
    objective: Objective
    """What was to be as high as possible."""
    best: Ranked
    """The best strategy."""
    runners_up: list[Ranked]
    """The next ones, in their order."""
    standing: SpaceStanding | None = None
    """How it stands in its space; null where it is not of the campaign's space."""
    pareto: list[ParetoFront] = Field(default_factory=list)
    """Fronts of the rate against nodes and against energy; the latter only where the machine's
    power figures are known."""
    baseline: Baseline | None = None
    """The layout that was measured first; null where the campaign did without."""
    speedup_over_baseline: float | None = None
    """The best's objective over the baseline's, at the global batch of the best where the
    baseline's trial tells of that; null where there is no such figure."""
    training: TrainingCost
    """What a whole training would take with the best."""
    saving: TrainingSaving | None = None
    """What it would save against the baseline; null where that has no figures, or is the best
    itself."""
    accumulations: list[Accumulation]
    """Iteration times of the best's layout at other GAS values."""
    trials: int
    """Trials of the campaign, confirmations among them."""
    failures: int
    """Trials that failed."""
    node_hours: float
    """Node-hours that all trials took."""
    caveats: list[str]
    """What to know before relying on it, a sentence each."""
    artefacts: list[str]
    """Names of the files that launch it, each downloadable."""
    launch: LaunchScript | None = None
    """The one of `artefacts` to start with; null where there is none."""
    trainers: list[TrainerOffer] = Field(default_factory=list)
    """Trainers to launch the best with, whichever ran the trials; the best suited first."""
