"""What can be said before anything runs: one strategy, a space, a campaign. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np

from autotune.capacity import fits_nowhere, nodes_of
from autotune.cost_model import Estimate, estimate
from autotune.measurement import AccumulationMeasurement, metrics, probe_accumulations
from autotune.resolution import (
    machine_of,
    machine_shape,
    model_shape,
    space_of,
    strategy_of,
    transformer_of,
)
from autotune.schemas import (
    CampaignCreate,
    DryRun,
    MachineChoice,
    ModelChoice,
    Prediction,
    PredictionQuery,
    Refusal,
    SpaceQuery,
    SpaceReport,
)
from autotune.search.layouts import Layouts
from autotune.trial_cost import trial_node_hours
from search_spaces.errors import InvalidInput, InvalidInputs
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.rules import RULES, findings
from search_spaces.space import Enumeration, SearchSpace
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

REPRESENTATIVE = 100
"""Layouts, the most promising first, whose predicted trials stand for those of a campaign."""

LOCAL = "local"


def predict(query: PredictionQuery) -> Prediction:
    """Whether a strategy is legal and, if so, its predicted time, memory and rates.

    Raises:
        InvalidInputs: fields `model` and `machine`.
    """
    transformer, machine = _subject(query.model, query.machine)
    strategy = strategy_of(query.strategy)
    found = findings(strategy, transformer, machine)
    illegal = Prediction(
        model=model_shape(transformer),
        machine=machine_shape(machine),
        strategy=query.strategy,
        legal=all(finding.severity == "warn" for finding in found),
        reasons=[Refusal(rule=f.rule, reason=f.reason, severity=f.severity) for f in found],
    )
    if not illegal.legal:
        return illegal
    return illegal.model_copy(update=_figures(transformer, machine, strategy))


def _figures(transformer: Transformer, machine: Machine, strategy: Strategy) -> dict[str, object]:
    """The fields of a Prediction that only a legal strategy has."""
    lattice = Lattice.of([strategy], gpus_per_node=machine.gpus_per_node)
    estimated = estimate(transformer, machine, lattice)
    seconds = float(estimated.iteration_time_s[0])
    measurement = AccumulationMeasurement(
        gradient_accumulation_steps=strategy.gradient_accumulation_steps,
        iteration_times_s=(seconds,),
    )
    rates = metrics(transformer, machine, strategy, [measurement])
    shared = ("tokens_per_s", "tokens_per_s_per_gpu", "mfu", "hfu", "global_batch_size")
    tflops = ("model_tflops_per_gpu", "hardware_tflops_per_gpu")
    return {name: getattr(rates, name) for name in (*shared, *tflops)} | {
        "fits": bool(estimated.fits[0]),
        "data_parallel": strategy.data_parallel(machine.gpus_per_node),
        "iteration_time_s": seconds,
        "memory_gib": float(estimated.memory_gib[0]),
        "memory_limit_gib": estimated.memory_limit_gib,
        "time_parts_s": {k: float(v[0]) for k, v in estimated.time_parts_s.items()},
        "memory_parts_gib": {k: float(v[0]) for k, v in estimated.memory_parts_gib.items()},
    }


def space_report(query: SpaceQuery) -> SpaceReport:
    """Counts of a space: raw, legal, predicted to fit; what removed the rest; what to mind.

    Raises:
        InvalidInputs: fields `model`, `machine`, `nodes`, `space.…`.
    """
    transformer, machine = _subject(query.model, query.machine)
    space = space_of(query.space, transformer, machine, nodes=query.nodes)
    estimated = estimate(transformer, machine, space.lattice())
    obstacle = _obstacle(space, estimated, query)
    return _report(space, estimated, warnings=[obstacle.reason] if obstacle else [])


def _report(space: SearchSpace, estimated: Estimate, *, warnings: list[str]) -> SpaceReport:
    enumeration = space.enumerate()
    batches = np.unique(enumeration.legal.global_batch_size).tolist()
    return SpaceReport(
        model=model_shape(space.transformer),
        machine=machine_shape(space.machine),
        dimensions={name: list(values) for name, values in space.dimensions.items()},
        raw=enumeration.raw,
        legal=len(enumeration.legal),
        fitting=int(np.count_nonzero(estimated.fits)),
        layouts=len(_fitting_layouts(space, estimated)),
        global_batch_sizes=batches,
        refusals=[
            Refusal(rule=rule, reason=RULES[rule].demand, count=count)
            for rule, count in enumeration.removed.items()
        ],
        warnings=[*warnings, *_advice(enumeration, batches)],
    )


def _advice(enumeration: Enumeration, batches: list[int]) -> Iterator[str]:
    """What a user should know of the legal strategies before trusting a comparison of them."""
    if len(batches) > 1:
        yield (
            f"the global batch size varies from {batches[0]} to {batches[-1]} samples, and it "
            "decides how a model converges: fix global_batch_size to compare like with like"
        )
    legal = len(enumeration.legal)
    for rule, count in enumeration.warned.items():
        yield f"{count} of {legal} legal strategies go against a rule: {RULES[rule].demand}"


def _fitting_layouts(space: SearchSpace, estimated: Estimate) -> list[Strategy]:
    """The first of each layout's twins for all that are predicted to fit, most promising first."""
    if not estimated.fits.any():
        return []
    layouts = Layouts.of(space, objective="tokens_per_s")
    return list(layouts.lattice.take(layouts.memory_gib <= layouts.memory_limit_gib))


def check_campaign(request: CampaignCreate, *, now: datetime | None = None) -> SearchSpace:
    """A campaign's space, all of its input checked.

    Args:
        now: the time that its deadline is compared with; the clock's where not given.

    Raises:
        InvalidInputs: every field that cannot be used: an unknown model or machine, nodes that the
            machine has not, a space in which nothing is legal or nothing fits, a pool or an
            evaluator that could run no trial, a deadline that has passed.
    """
    problems = list(_late(request.budget.deadline, now or datetime.now(UTC)))
    try:
        transformer, machine = _subject(request.model, request.machine)
        problems += _misplaced(request, machine)
        space = space_of(request.space, transformer, machine, nodes=request.nodes)
        obstacle = _obstacle(space, estimate(transformer, machine, space.lattice()), request)
        problems += [obstacle] if obstacle else _too_small_a_pool(request, space)
    except InvalidInputs as refusal:
        raise InvalidInputs([*problems, *refusal.problems]) from refusal
    if problems:
        raise InvalidInputs(problems)
    return space


def _subject(model: ModelChoice, machine: MachineChoice) -> tuple[Transformer, Machine]:
    """Both resolved, or every fault of both."""
    problems: list[InvalidInput] = []
    resolved: list[Transformer | Machine] = []
    for resolve in (lambda: transformer_of(model), lambda: machine_of(machine)):
        try:
            resolved.append(resolve())
        except InvalidInput as problem:
            problems.append(problem)
        except InvalidInputs as refusal:
            problems += refusal.problems
    if problems:
        raise InvalidInputs(problems)
    return resolved[0], resolved[1]  # type: ignore[return-value]


def _late(deadline: datetime | None, now: datetime) -> Iterator[InvalidInput]:
    """A deadline without a time zone is taken as UTC."""
    if deadline is None:
        return
    aware = deadline if deadline.tzinfo else deadline.replace(tzinfo=UTC)
    if aware <= now:
        reason = "this deadline has passed"
        valid = f"a time after {now.isoformat(timespec='seconds')}"
        yield InvalidInput("budget.deadline", deadline.isoformat(), reason, valid=valid)


def _misplaced(request: CampaignCreate, machine: Machine) -> Iterator[InvalidInput]:
    """An evaluator, or a pool, that the machine cannot give."""
    if request.evaluator == LOCAL and machine.name != LOCAL:
        reason = f"real trials run on this machine, named {LOCAL!r}, and not on {machine.name!r}"
        yield InvalidInput("evaluator", request.evaluator, reason, valid="simulated, or local")
    if request.pool_nodes is not None and request.pool_nodes > machine.max_nodes:
        reason = f"{machine.name} has {nodes_of(machine.max_nodes)}"
        valid = f"1 to {machine.max_nodes}"
        yield InvalidInput("pool_nodes", request.pool_nodes, reason, valid=valid)


def _obstacle(
    space: SearchSpace, estimated: Estimate, query: SpaceQuery | CampaignCreate
) -> InvalidInput | None:
    """Why nothing of the space can be tried: nothing legal, or nothing that fits."""
    enumeration = space.enumerate()
    if len(enumeration.legal) == 0:
        return _nothing_legal(enumeration)
    if not estimated.fits.any():
        return fits_nowhere(space, estimated, spec=query.space)
    return None


def _nothing_legal(enumeration: Enumeration) -> InvalidInput:
    removed = "; ".join(
        f"{rule} removed {count} ({RULES[rule].demand})"
        for rule, count in enumeration.removed.items()
    )
    reason = f"none of the {enumeration.raw} strategies is legal: {removed}"
    return InvalidInput("space", enumeration.raw, reason, valid="a space with a legal strategy")


def _too_small_a_pool(request: CampaignCreate, space: SearchSpace) -> Iterator[InvalidInput]:
    """A pool that is smaller than the smallest strategy would leave its campaign waiting."""
    smallest = int(space.lattice()["num_nodes"].min())
    if request.pool_nodes is not None and request.pool_nodes < smallest:
        reason = f"every strategy of the space needs {nodes_of(smallest)} or more"
        valid = f"{smallest} or more"
        yield InvalidInput("pool_nodes", request.pool_nodes, reason, valid=valid)


def dry_run(request: CampaignCreate, *, now: datetime | None = None) -> DryRun:
    """What a campaign would do: its space, the cost of its trials, how many its budget buys.

    A deadline is not counted: how long trials wait for nodes is not known.

    Raises:
        InvalidInputs: as `check_campaign`.
    """
    space = check_campaign(request, now=now)
    estimated = estimate(space.transformer, space.machine, space.lattice())
    report = _report(space, estimated, warnings=[])
    searching, confirming = _trial_costs(request, space, estimated)
    affordable = min(request.budget.max_trials, report.layouts)
    most = request.budget.max_node_hours
    if most is not None:
        affordable = min(affordable, int(most / searching))
    return DryRun(
        space=report,
        node_hours_per_trial=searching,
        node_hours_budget=most,
        node_hours_expected=affordable * searching + confirming,
        trials_affordable=affordable,
    )


def _trial_costs(
    request: CampaignCreate, space: SearchSpace, estimated: Estimate
) -> tuple[float, float]:
    """Node-hours of one trial of the search, and of all confirmations together.

    Confirmations are of the best few layouts, at their own accumulation alone.
    """
    layouts = _fitting_layouts(space, estimated)[:REPRESENTATIVE]
    best = layouts[: request.protocol.confirmations]
    searching, confirming = (
        trial_node_hours(
            space.transformer,
            space.machine,
            strategies,
            accumulations,
            protocol=request.protocol,
            evaluator=request.evaluator,
        )
        for strategies, accumulations in (
            (layouts, [probe_accumulations(strategy) for strategy in layouts]),
            (best, [(strategy.gradient_accumulation_steps,) for strategy in best]),
        )
    )
    return float(np.median(searching)), float(np.sum(confirming))
