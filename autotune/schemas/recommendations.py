"""Recommendation of a campaign: its best strategies, their cost and saving, and the baseline."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.schemas.choices import Objective, ParetoCost, TrainerName, TrialState
from autotune.schemas.knobs import KnobFindings
from autotune.schemas.trials import Accumulation, TrialMetrics
from autotune.schemas.wire import Wire
from search_spaces.strategy import Strategy


class Ranked(Wire):
    """A strategy of the recommendation."""

    rank: int
    """1 is the best."""
    trial_numbers: list[int]
    """Trials of its layout."""
    strategy: Strategy
    """The strategy."""
    metrics: TrialMetrics
    """Metrics, the median of its trials; projected if not measured on its own nodes."""
    predicted_iteration_time_s: float | None
    """Median prediction of the time of an optimizer step before it ran, s."""
    relative_to_best: float
    """Objective relative to the best."""
    significant: bool | None
    """Whether the best beats it by more than both spreads; null for the best itself."""
    confirmed: bool
    """Whether a confirmation succeeded."""
    memory_headroom_gib: float | None
    """Free memory on the fullest GPU, GiB; null if unknown."""
    failed_confirmation: bool = False
    """Whether its confirmation failed; it is then ranked last."""
    keeps_headroom: bool = True
    """Whether it leaves the requested headroom."""
    joules_per_token: float | None = None
    """Energy of all nodes, hosts included, J per token; predicted unless `metrics.energy_sampled`;
    null if the machine's power is unknown."""
    gpu_joules_per_token: float | None = None
    """Energy of the GPUs alone during the measured iterations, J per token, the median of its
    trials; null if not sampled."""
    projected_from_nodes: int | None = None
    """Nodes of the trials from which it is projected; null if measured on its own nodes. A
    projected strategy is never `confirmed`."""
    projected_from_layers: int | None = None
    """Layers of the trials from which it is projected; null if they had all layers."""


class FrontPoint(Wire):
    """A measured layout on the Pareto front of rate and cost."""

    trial_numbers: list[int]
    """Trials of the layout."""
    strategy: Strategy
    """The strategy."""
    tokens_per_s: float
    """Tokens per second."""
    joules_per_token: float | None
    """Energy of all nodes, hosts included, J per token; predicted unless `energy_sampled`; null if
    the machine's power is unknown."""
    energy_sampled: bool
    """Whether the GPUs' part of that energy was sampled."""
    confirmed: bool
    """Whether a confirmation succeeded."""


class ParetoFront(Wire):
    """Pareto front of the rate against nodes or energy."""

    against: ParetoCost
    """The cost on the other axis."""
    points: list[FrontPoint]
    """Layouts of the front, by increasing rate and cost."""


class TrainingCost(Wire):
    """Time, node-hours and energy of a whole training with the best strategy, from its measured
    rate."""

    tokens: float
    """Tokens of the training."""
    iterations: int
    """Optimizer steps."""
    days: float
    """Days without interruption."""
    node_hours: float
    """Node-hours."""
    energy_mwh: float | None
    """Energy of all nodes, hosts included, MWh; null if the machine's power is unknown."""
    gpu_energy_mwh: float | None = None
    """Energy of the GPUs alone, MWh: `energy_mwh` without the rest of the nodes; null if their
    power is unknown."""
    energy_sampled: bool = False
    """Whether the GPUs' energy, alone and in `energy_mwh`, was sampled; otherwise it is
    predicted."""
    assumed: bool = False
    """Whether `tokens` is an assumption (20 per parameter)."""


class TrainingSaving(Wire):
    """Saving of a whole training with the best strategy against the baseline.

    Computed at the global batch of the best if the baseline's trial covers it; negative if the best
    costs more.
    """

    tokens: float
    """Tokens of the training."""
    days: float
    """Days that it saves."""
    node_hours: float
    """Node-hours that it saves."""
    energy_mwh: float | None
    """Saved energy of all nodes, hosts included, MWh; null unless known for both."""
    repaid_after_tokens: float | None
    """Tokens after which the saving equals the campaign's node-hours; null if nothing is saved."""


class LaunchNeed(Wire):
    """A variable that a launch script needs from the user."""

    variable: str
    """Name of the environment variable."""
    meaning: str
    """Expected value."""


class LaunchScript(Wire):
    """The script that trains with the best strategy, or else repeats its trial.

    It runs unchanged if `needs` is empty.
    """

    file: str
    """Name of the script, one of the `artefacts`."""
    needs: list[LaunchNeed]
    """Variables that it needs; empty if it runs unchanged."""
    remark: str
    """What it does and with which trainer, in a sentence."""


class TrainerOffer(Wire):
    """A trainer, and whether it can train the best strategy."""

    name: TrainerName
    """The trainer, as `artefacts.zip` takes it."""
    supported: bool
    """Whether it can train the model with this strategy."""
    reason: str
    """Why it cannot, in a sentence; empty if it can."""
    variables: list[LaunchNeed]
    """Environment variables that its files read; empty if there are no files."""


class Baseline(Wire):
    """The baseline of a campaign."""

    name: str
    """Whose it is: `your own layout`, a vendor's recipe, or `a default layout`."""
    trial_number: int
    """Its trial."""
    strategy: Strategy
    """The strategy."""
    state: TrialState
    """State of its trial."""
    metrics: TrialMetrics | None
    """Metrics at its own GAS, the median of its trials; null if there are none."""
    unread: list[str] = Field(default_factory=list)
    """Options of its line of arguments that may change its speed or memory and were not
    measured."""
    speedup_low: float | None = None
    """Lower end of the best's speedup over it, by the spreads of both."""
    speedup_high: float | None = None
    """Upper end of that speedup."""
    comparison: str
    """Comparison of the best with it, or its failure, in a sentence."""


class Neighbour(Wire):
    """A neighbour: a layout that differs from the best in one dimension, by the next value of the
    space."""

    dimension: str
    """The dimension."""
    step: str
    """What differs, in words."""
    strategy: Strategy
    """The strategy."""
    state: Literal["ok", "oom", "failed"] | None
    """State of its trial; null without one."""
    relative_to_best: float | None
    """Rate relative to the best: measured if `state` is `ok`, predicted if it is null; null if its
    trial failed."""
    relative_low: float | None
    """Lower end of the 80 % interval of that ratio."""
    relative_high: float | None
    """Upper end of the 80 % interval of that ratio."""
    fit_probability: float
    """Probability that it fits with the requested headroom; 1 or 0 if a trial has shown it."""


class SpaceStanding(Wire):
    """How certainly the recommended layout is the best of its space."""

    probability_best: float
    """Probability that it is the best."""
    expected_gain: float
    """Expected relative gain in rate if the true best were known."""
    untried: int
    """Layouts of the space that have not run."""
    neighbours: list[Neighbour]
    """Its neighbours."""
    sentence: str
    """Summary in words."""


class Recommendation(Wire):
    """Recommendation of a campaign."""

    campaign_id: int
    """The campaign."""
    provisional: bool
    """Whether it may change: the campaign is running, or its best is unconfirmed."""
    simulated: bool
    """Whether its results are simulated by the cost model."""
    objective: Objective
    """The objective: the metric that is maximised."""
    best: Ranked
    """The best strategy."""
    fuller: Ranked | None = None
    """Fastest layout that is faster than the best but leaves too little memory; null without
    one."""
    runners_up: list[Ranked]
    """Runners-up, by rank."""
    standing: SpaceStanding | None = None
    """How certainly it is the best of the space; null if it is outside the space."""
    pareto: list[ParetoFront] = Field(default_factory=list)
    """Pareto fronts of the rate against nodes and against energy; the latter only if the machine's
    power is known."""
    baseline: Baseline | None = None
    """The baseline; null without one."""
    speedup_over_baseline: float | None = None
    """Objective of the best relative to the baseline, at the global batch of the best if the
    baseline's trial covers it; null if unknown."""
    training: TrainingCost
    """Cost of a whole training with the best."""
    saving: TrainingSaving | None = None
    """Saving against the baseline; null if the baseline has no metrics or is the best itself."""
    accumulations: list[Accumulation]
    """Iteration times of the best's layout at other GAS values."""
    trials: int
    """Trials of the campaign, including confirmations and starts of knobs."""
    failures: int
    """Trials that failed."""
    node_hours: float
    """Node-hours of all trials."""
    noise_floor: float | None = None
    """Relative difference below which 95 % of pairs of equal starts are, so that smaller ones are
    noise; null until a layout has been started twice at its own GAS."""
    knobs: KnobFindings | None = None
    """Knobs that were tried on the best layout; null if none were."""
    runner_up_knobs: KnobFindings | None = None
    """Knobs that were tried on the first runner-up, because it is level with the best; null if none
    were."""
    caveats: list[str]
    """Caveats, one sentence each."""
    artefacts: list[str]
    """Names of its launch files."""
    launch: LaunchScript | None = None
    """The launch script; null if there is none."""
    trainers: list[TrainerOffer] = Field(default_factory=list)
    """Trainers for launching the best; the best suited first."""
