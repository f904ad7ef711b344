"""Strong and weak scaling of one layout over numbers of nodes, predicted and as a study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np

from autotune.calibration import Calibration, general_knowledge
from autotune.calibration.projection import REPEATS, projected
from autotune.cost_model import estimate
from autotune.cost_model.columns import Array, Columns
from autotune.explanation.rates import interval
from autotune.explanation.steps import Surroundings, at_batch
from autotune.prediction.campaign_cost import trial_node_hours
from autotune.prediction.space import report_of
from autotune.schemas.calibrations import CalibrationSummary
from autotune.schemas.choices import ScalingKind, TrialState
from autotune.schemas.predictions import DryRun
from autotune.schemas.requests import NO_BASELINE, CampaignCreate, ProtocolSpec
from autotune.schemas.resolution import (
    machine_shape,
    model_shape,
    strategy_of,
    strategy_shape,
    subject_of,
)
from autotune.schemas.scaling import (
    ScaledStrategy,
    ScalingQuery,
    ScalingSeries,
    ScalingStudy,
    UnscaledStrategy,
)
from autotune.schemas.spaces import SpaceSpec, StudiedStrategy, StudyPlan, StudySpec
from autotune.words.dimensions import value_words
from autotune.words.quantities import listed, nodes_of
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.program import ANY_PROGRAM, ProgramCapabilities
from search_spaces.space import SearchSpace, demand_dimensions
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

HALVINGS = 3
DOUBLINGS = 4
"""Doublings of the strategy's own number of nodes, used if no nodes are given."""

DRAWS = 1000

FAILED_WORDS: Mapping[TrialState, str] = {
    TrialState.OOM: "out of memory",
    TrialState.CRASHED: "crashed",
    TrialState.TIMEOUT: "out of time",
}
OTHERWISE_FAILED = "without a result"


def scaling_study(
    query: ScalingQuery,
    calibration: Calibration | None = None,
    summary: CalibrationSummary | None = None,
    *,
    program: ProgramCapabilities = ANY_PROGRAM,
) -> ScalingStudy:
    """Predict how a strategy's layout scales.

    Args:
        calibration, summary, program: as for `predict`.

    Raises:
        InvalidInputs: fields `model` and `machine`; dimensions that the trainer does not vary.
        InvalidInput: field `nodes`, of which the layout can run on none.
    """
    transformer, machine = subject_of(query.model, query.machine)
    calibration = calibration or general_knowledge(machine, program.tuning, program.states)
    strategy = strategy_of(query.strategy)
    demand_dimensions(strategy, machine, program)
    return ScalingStudy(
        model=model_shape(transformer),
        machine=machine_shape(machine),
        strategy=query.strategy,
        calibration=summary,
        series=scaling_series(
            calibration, transformer, strategy, nodes=query.nodes, program=program
        ),
    )


def scaling_series(
    calibration: Calibration,
    transformer: Transformer,
    strategy: Strategy,
    *,
    nodes: Sequence[int],
    kinds: Sequence[ScalingKind] = get_args(ScalingKind),
    measured: Mapping[Strategy, float] | None = None,
    failed: Mapping[Strategy, TrialState] | None = None,
    simulated: bool = False,
    program: ProgramCapabilities = ANY_PROGRAM,
) -> list[ScalingSeries]:
    """Return strong and weak scaling of a layout, predicted where it was not measured; only one of
    them if the layout cannot run in the other way. Efficiencies are relative to the fewest nodes on
    which it has not failed.

    Args:
        calibration: of the machine, including the `measured` steps.
        strategy: the layout, with the global batch that strong scaling keeps and that weak scaling
            has on the strategy's own nodes.
        nodes: numbers of nodes; halves and doubles of the strategy's own by default.
        kinds: the kinds of scaling to return.
        measured: strategy -> seconds per step.
        failed: strategy -> how its trial ended without a timed step.
        simulated: whether the measurements are simulated, for the sentence.

    Raises:
        InvalidInput: field `nodes`: the layout cannot run on any of them.
    """
    machine = calibration.machine
    beyond = [each for each in nodes if not 1 <= each <= machine.max_nodes]
    if beyond:
        reason = f"{machine.name} has {machine.max_nodes} nodes"
        raise InvalidInput("nodes", beyond[0], reason, valid=f"1 to {machine.max_nodes}")
    wanted = list(nodes) or list(usual_widths(strategy, machine))
    series: list[ScalingSeries] = []
    refused: InvalidInput | None = None
    for kind in kinds:
        try:
            series.append(
                _scaling(
                    calibration,
                    transformer,
                    strategy,
                    kind=kind,
                    nodes=wanted,
                    measured=measured or {},
                    failed=failed or {},
                    simulated=simulated,
                    program=program,
                )
            )
        except InvalidInput as refusal:
            refused = refusal
    if refused is not None and not series:
        raise refused
    return series


def usual_widths(strategy: Strategy, machine: Machine) -> Iterator[int]:
    """Yield halves and doubles of a strategy's own number of nodes."""
    own = strategy.num_nodes
    for power in range(-HALVINGS, DOUBLINGS + 1):
        nodes = own << power if power >= 0 else own >> -power
        whole = power >= 0 or own % (1 << -power) == 0
        if whole and 1 <= nodes <= machine.max_nodes:
            yield nodes


def _scaling(
    calibration: Calibration,
    transformer: Transformer,
    strategy: Strategy,
    *,
    kind: ScalingKind,
    nodes: Sequence[int],
    measured: Mapping[Strategy, float],
    failed: Mapping[Strategy, TrialState],
    simulated: bool,
    program: ProgramCapabilities,
) -> ScalingSeries:
    legal, omitted = scaled_strategies(
        calibration.machine, transformer, strategy, kind=kind, nodes=nodes, program=program
    )
    if not legal:
        reasons = "; ".join(f"{count}: {reason}" for count, reason in omitted.items())
        reason = f"the layout can run on none of them ({reasons})"
        raise InvalidInput("nodes", list(nodes), reason, valid="numbers of nodes that it divides")
    fell = {each: failed[each] for each in legal if each in failed}
    ran = [each for each in legal if each not in fell]
    points = _timed(calibration, transformer, ran, measured) if ran else []
    return ScalingSeries(
        kind=kind,
        strategy=strategy_shape(strategy),
        points=points,
        failed=[
            UnscaledStrategy(num_nodes=each.num_nodes, strategy=strategy_shape(each), state=state)
            for each, state in fell.items()
        ],
        omitted=omitted,
        sentence=_sentence(kind, points, fell, simulated=simulated),
    )


def _timed(
    calibration: Calibration,
    transformer: Transformer,
    points: Sequence[Strategy],
    measured: Mapping[Strategy, float],
) -> list[ScaledStrategy]:
    lattice = Lattice.of(points, gpus_per_node=calibration.machine.gpus_per_node)
    columns = Columns.of(transformer, lattice)
    seconds = [measured.get(each) for each in points]
    logs = _log_times(calibration, columns, seconds)
    tokens = lattice.global_batch_size * float(transformer.seq_length)
    each_gpu = np.log(tokens / lattice.world_size) - logs
    relative = np.exp(each_gpu - each_gpu[:, :1])
    times, fits = np.exp(logs), calibration.fit_probability(columns)
    time_low, time_high = interval(times[0], times[1:])
    low, high = interval(relative[0], relative[1:])
    return [
        ScaledStrategy(
            strategy=strategy_shape(each),
            num_nodes=each.num_nodes,
            gpus=int(lattice.world_size[row]),
            global_batch_size=int(lattice.global_batch_size[row]),
            iteration_time_s=float(times[0, row]),
            iteration_time_low_s=float(time_low[row]),
            iteration_time_high_s=float(time_high[row]),
            measured=seconds[row] is not None,
            tokens_per_s=float(tokens[row] / times[0, row]),
            efficiency=float(relative[0, row]),
            efficiency_low=float(low[row]),
            efficiency_high=float(high[row]),
            fit_probability=1.0 if seconds[row] is not None else float(fits[row]),
        )
        for row, each in enumerate(points)
    ]


def scaled_strategies(
    machine: Machine,
    transformer: Transformer,
    strategy: Strategy,
    *,
    kind: ScalingKind,
    nodes: Sequence[int],
    program: ProgramCapabilities = ANY_PROGRAM,
) -> tuple[list[Strategy], dict[int, str]]:
    """Return the strategy on each number of nodes, and why there is none on the others."""
    around = Surroundings(transformer=transformer, machine=machine, program=program)
    own = strategy.global_batch_size(machine.gpus_per_node)
    points: list[Strategy] = []
    omitted: dict[int, str] = {}
    for count in sorted(set(nodes)):
        batch = own if kind == "strong" else own * count / strategy.num_nodes
        other = replace(strategy, num_nodes=count)
        refusal = around.refusal(other)
        scaled = at_batch(other, batch, machine.gpus_per_node)
        if refusal is None and scaled is None:
            refusal = (
                f"{other.data_parallel(machine.gpus_per_node)} replicas of micro-batches of "
                f"{strategy.micro_batch_size} make no global batch of {batch:g}"
            )
        elif refusal is None and scaled is not None:
            refusal = around.refusal(scaled)
        if refusal is None and scaled is not None:
            points.append(scaled)
        else:
            omitted[count] = refusal or ""
    return points, omitted


def _log_times(
    calibration: Calibration, columns: Columns, seconds: Sequence[float | None]
) -> Array:
    """Return the logarithm of each time, shape (1 + draws, n): the median first, then joint draws.

    Measured times vary between draws by the noise of a repeated run. Unmeasured ones are projected
    from the nearest measured number of nodes, since the residual of one layout is similar on all of
    them.
    """
    generator = np.random.default_rng(0)
    ran = [row for row, measured_s in enumerate(seconds) if measured_s is not None]
    if not ran:
        mean, _, _ = calibration.time.predict(columns)
        draws = calibration.time.draws(columns, count=DRAWS, generator=generator)
        return np.vstack([mean, draws])
    widths = np.broadcast_to(np.log2(columns["data_parallel"]), len(columns))
    rows = np.arange(len(columns))
    nearest = np.array(ran)[np.abs(widths[:, np.newaxis] - widths[ran]).argmin(axis=1)]
    timed = np.array([np.nan if each is None else np.log(each) for each in seconds])
    others = np.setdiff1d(rows, ran)
    logs = np.vstack([timed, timed + generator.normal(0.0, REPEATS, (DRAWS, len(rows)))])
    if len(others):
        base = nearest[others]
        mean, variance = projected(
            calibration.time,
            narrow=columns.take(base),
            wide=columns.take(others),
            log_time=timed[base],
        )
        noise = generator.normal(size=(DRAWS, len(others))) * np.sqrt(variance)
        logs[:, others] = np.vstack([mean, mean + noise])
    return np.asarray(logs)


def _sentence(
    kind: ScalingKind,
    points: Sequence[ScaledStrategy],
    failed: Mapping[Strategy, TrialState],
    *,
    simulated: bool,
) -> str:
    fell = "; ".join(_failures(failed))
    if not points:
        return f"No step could be timed: {fell}"
    least, most = points[0], points[-1]
    if least is most:
        kept = f"{value_words('num_nodes', least.num_nodes)} alone: nothing to compare"
        return f"{kept}; {fell}" if fell else kept
    batch = (
        f"the same batch of {most.global_batch_size}"
        if kind == "strong"
        else f"a batch that grows from {least.global_batch_size} to {most.global_batch_size}"
    )
    origin = "predicted"
    if least.measured and most.measured:
        origin = "simulated" if simulated else "measured"
    kept = (
        f"From {least.num_nodes} to {most.num_nodes} nodes with {batch}, "
        f"{100 * most.efficiency:.0f} % of the rate per GPU is kept, {origin} "
        f"({100 * most.efficiency_low:.0f} to {100 * most.efficiency_high:.0f} %)"
    )
    return f"{kept}; {fell}" if fell else kept


def _failures(failed: Mapping[Strategy, TrialState]) -> Iterator[str]:
    words = {each: FAILED_WORDS.get(state, OTHERWISE_FAILED) for each, state in failed.items()}
    for why in dict.fromkeys(words.values()):
        nodes = [str(each.num_nodes) for each, cause in words.items() if cause == why]
        yield f"{why} on {listed(nodes)} node{'s' if nodes != ['1'] else ''}"


LONGEST_S = 86400.0
"""Replaces a trial's time limit, because a trial of a study measures more."""


@dataclass(frozen=True, kw_only=True)
class StudyTrials:
    """Trials of a scaling study.

    Attributes:
        strategies: each once, fewest nodes first, so that results appear early.
        omitted: one sentence for each number of nodes on which a layout cannot run.
    """

    strategies: tuple[Strategy, ...]
    omitted: tuple[str, ...]

    @classmethod
    def of(
        cls,
        request: CampaignCreate,
        transformer: Transformer,
        machine: Machine,
        *,
        program: ProgramCapabilities = ANY_PROGRAM,
    ) -> StudyTrials:
        """Return the trials of a request with a study.

        Raises:
            InvalidInputs: field `study.strategies` is empty, or `study.nodes` leaves nothing to
                compare.
        """
        study = request.study
        assert study is not None
        problems = list(_unusable(study, machine))
        if problems:
            raise InvalidInputs(problems)
        found: dict[Strategy, None] = {}
        omitted: dict[str, None] = {}
        for shape in study.strategies:
            strategy = strategy_of(shape)
            widths = study.nodes or [
                each for each in usual_widths(strategy, machine) if each <= request.nodes
            ]
            for kind in study.kinds:
                points, refused = scaled_strategies(
                    machine, transformer, strategy, kind=kind, nodes=widths, program=program
                )
                found |= dict.fromkeys(points)
                omitted |= {
                    f"not on {nodes_of(nodes)} with {_batch(kind)}: {reason}": None
                    for nodes, reason in refused.items()
                }
                if len(points) < 2:
                    problems.append(_nothing_to_compare(points, widths, kind, refused))
        if problems:
            raise InvalidInputs(problems)
        ordered = sorted(found, key=lambda strategy: strategy.num_nodes)
        return cls(strategies=tuple(ordered), omitted=tuple(omitted))


def study_space(
    request: CampaignCreate,
    transformer: Transformer,
    machine: Machine,
    *,
    program: ProgramCapabilities = ANY_PROGRAM,
) -> SearchSpace:
    """Return the strategies of a study as a space, in order; raises InvalidInputs as
    `StudyTrials.of` does."""
    trials = StudyTrials.of(request, transformer, machine, program=program)
    return SearchSpace.listed(transformer, machine, trials.strategies, program=program)


def study_problems(request: CampaignCreate, space: SearchSpace) -> Iterator[InvalidInput]:
    """Yield options that apply to a search only, and a pool that is too small."""
    searching = "a scaling study has no search"
    if request.space != SpaceSpec():
        given = request.space.model_dump(exclude_none=True)
        yield InvalidInput("space", given, searching, valid="`study` or `space`")
    if request.baseline not in (None, NO_BASELINE):
        valid = "the baseline among `study.strategies`"
        yield InvalidInput("baseline", str(request.baseline), searching, valid=valid)
    for field in ("screen_nodes", "screen_layers"):
        value = getattr(request, field)
        if isinstance(value, int):
            yield InvalidInput(field, value, searching, valid="off")
    widest = max(strategy.num_nodes for strategy in space.lattice())
    if request.pool_nodes is not None and request.pool_nodes < widest:
        reason = f"the study's largest trial needs {nodes_of(widest)} at once"
        yield InvalidInput("pool_nodes", request.pool_nodes, reason, valid=f"{widest} or more")


def settled(request: CampaignCreate, space: SearchSpace) -> CampaignCreate:
    """Return a study's request with derived fields filled in: its nodes, a budget of all its trials
    unless fewer were requested, and no search options.

    Args:
        space: the study's strategies.
    """
    study = request.study
    assert study is not None
    strategies = list(space.lattice())
    trials = len(strategies)
    if "max_trials" in request.budget.model_fields_set:
        trials = request.budget.max_trials
    widths = sorted({strategy.num_nodes for strategy in strategies})
    return request.model_copy(
        update={
            "study": study.model_copy(update={"nodes": study.nodes or widths}),
            "nodes": widths[-1],
            "baseline": NO_BASELINE,
            "screen_nodes": "off",
            "screen_layers": "off",
            "budget": request.budget.model_copy(update={"max_trials": trials}),
            "protocol": request.protocol.model_copy(update={"confirmations": 0}),
        }
    )


def study_dry_run(request: CampaignCreate, space: SearchSpace) -> DryRun:
    """Return the dry run of a study: its trials, their cost, and how many of them the budget
    allows.

    Args:
        space: the study's strategies.
    """
    transformer, machine, lattice = space.transformer, space.machine, space.lattice()
    estimated = estimate(transformer, machine, lattice)
    strategies = list(lattice)
    hours = trial_node_hours(
        transformer,
        machine,
        strategies,
        [(strategy.gradient_accumulation_steps,) for strategy in strategies],
        protocol=unhurried(request.protocol),
        evaluator=request.evaluator,
    ).tolist()
    trials = [
        StudiedStrategy(
            strategy=strategy_shape(strategy),
            gpus=strategy.world_size(machine.gpus_per_node),
            global_batch_size=strategy.global_batch_size(machine.gpus_per_node),
            iteration_time_s=float(estimated.iteration_time_s[row]),
            memory_gib=float(estimated.memory_gib[row]),
            fits=bool(estimated.fits[row]),
            node_hours=hours[row],
        )
        for row, strategy in enumerate(strategies)
    ]
    omitted = StudyTrials.of(request, transformer, machine, program=space.program).omitted
    budget = request.budget
    affordable, spent = 0, 0.0
    for each in hours[: budget.max_trials]:
        if budget.max_node_hours is not None and spent + each > budget.max_node_hours:
            break
        affordable, spent = affordable + 1, spent + each
    return DryRun(
        space=report_of(space, estimated, warnings=[]),
        node_hours_per_trial=sum(hours) / len(hours),
        node_hours_budget=budget.max_node_hours,
        node_hours_expected=sum(hours),
        trials_affordable=affordable,
        study=StudyPlan(trials=trials, omitted=list(omitted)),
    )


def unhurried(protocol: ProtocolSpec) -> ProtocolSpec:
    return protocol.model_copy(update={"time_limit_s": LONGEST_S})


def _unusable(study: StudySpec, machine: Machine) -> Iterator[InvalidInput]:
    if not study.strategies:
        reason = "a scaling study needs a layout to measure"
        valid = "a strategy, or in `study.like` the campaign that recommends one"
        yield InvalidInput("study.strategies", [], reason, valid=valid)
    beyond = [each for each in study.nodes if each > machine.max_nodes]
    if beyond:
        reason = f"{machine.name} has {nodes_of(machine.max_nodes)}"
        yield InvalidInput("study.nodes", beyond[0], reason, valid=f"1 to {machine.max_nodes}")


def _batch(kind: str) -> str:
    return "the same batch" if kind == "strong" else "a batch in proportion"


def _nothing_to_compare(
    points: list[Strategy], widths: list[int], kind: str, refused: dict[int, str]
) -> InvalidInput:
    where = f"on {nodes_of(points[0].num_nodes)} alone" if points else "on none of these nodes"
    reason = f"with {_batch(kind)} the layout can run {where}, and scaling compares two or more"
    if refused:
        reason += f" ({'; '.join(f'{nodes}: {why}' for nodes, why in refused.items())})"
    return InvalidInput("study.nodes", widths, reason, valid="numbers of nodes that it divides")
