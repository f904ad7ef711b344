"""The answer of a campaign: its best strategies, what they cost, save, and stand against."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.schemas.shapes import StrategyShape
from autotune.schemas.trials import Accumulation, TrialMetrics, TrialState
from autotune.schemas.wire import Objective, Wire


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
