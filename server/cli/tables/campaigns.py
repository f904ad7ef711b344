"""Campaigns, their trials and figures, comparisons and recommendations as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.baseline import baseline_line
from autotune.measurement.metrics import another_model
from autotune.measurement.objectives import OBJECTIVE_UNITS
from autotune.schemas.campaigns import Campaign, outcome_of, outcome_of_campaign
from autotune.schemas.choices import ParetoCost
from autotune.schemas.comparisons import CampaignComparison, ComparedCampaign
from autotune.schemas.explanations import Explanation
from autotune.schemas.figures import FigureOffers, FigureTable
from autotune.schemas.recommendations import (
    Baseline,
    FrontPoint,
    Neighbour,
    ParetoFront,
    Ranked,
    Recommendation,
    SpaceStanding,
    TrainingCost,
    TrainingSaving,
)
from autotune.schemas.trials import Trial, TrialMetrics
from autotune.words.quantities import figure, nodes_of
from server.cli.tables.elements import (
    NO_VALUE,
    Cell,
    TableColumns,
    facts,
    grid,
    model_line,
    moment,
    strategy_line,
    table,
    with_unit,
)
from server.wording import (
    best_origin,
    best_projected_from,
    energy_origin,
    fastest_single,
    fits,
    iteration_expected,
    mark,
    neighbour_state,
    parameters,
    percent,
    projected_from,
    seconds,
    standing_of,
    started_from,
    step_spread,
    training_energy,
    why_chosen,
)


def campaigns(items: Sequence[Campaign]) -> Group:
    """Return one row per campaign: its question, its state, and its recommendation so far."""
    return table(
        items,
        (
            (">id", lambda item: item.id),
            ("name", lambda item: item.name or NO_VALUE),
            ("=outcome", outcome_of_campaign),
            ("=model", lambda item: item.model.name),
            ("=machine", lambda item: item.machine.name),
            ("=>nodes", lambda item: item.request.nodes),
            (">trials", lambda item: f"{item.trials}/{item.request.budget.max_trials}"),
            (">failed", lambda item: item.failures),
            (
                "=·best layout",
                lambda item: strategy_line(item.best_strategy) if item.best_strategy else NO_VALUE,
            ),
            (">best", lambda item: figure(item.best_objective)),
            ("=", _listed_unit),
            (">MFU", lambda item: percent(item.best_mfu)),
            ("=figures", best_origin),
            ("…waits for", lambda item: item.waits_for),
            ("…why", lambda item: "" if item.waits_for == item.reason else item.reason),
        ),
    )


def _listed_unit(item: Campaign) -> str:
    return OBJECTIVE_UNITS[item.request.objective]


def campaign(item: Campaign) -> Table:
    """Return a campaign's request and progress."""
    slurm, ray = item.request.slurm, item.request.ray
    profile = f": profile {slurm.profile}, {slurm.mode}" if slurm else ""
    if ray:
        named = [ray.address, f"profile {ray.profile}" if ray.profile else ""]
        profile = f": {', '.join(filter(None, named))}"
    waiting = f" ({item.waiting} of them waiting for nodes)" if item.waiting else ""
    start, own = started_from(item), baseline_line(item)
    return facts(
        [
            ("campaign", f"{item.id} {item.name}".strip()),
            ("outcome", ": ".join(filter(None, [outcome_of_campaign(item), item.reason]))),
            ("model", model_line(item.model)),
            ("machine", f"{item.machine.name}, at most {nodes_of(item.request.nodes)}"),
            ("evaluator", f"{item.request.evaluator}{profile} ({mark(item.simulated)})"),
            *([("your layout", own)] if own else []),
            (
                "trials",
                f"{item.trials} of {item.request.budget.max_trials}, {item.failures} failed, "
                f"{item.confirmations} confirmations, {item.pending} open{waiting}",
            ),
            *([("started from", start)] if start else []),
            *_screening(item),
            ("node-hours", figure(item.node_hours)),
            ("created", moment(item.created_at)),
            *_leading(item),
        ]
    )


def _best(item: Campaign) -> str:
    reached = with_unit(item.best_objective, OBJECTIVE_UNITS[item.request.objective])
    return ", ".join(filter(None, [reached, best_projected_from(item)]))


def _leading(item: Campaign) -> list[tuple[str, str]]:
    when = "recommended" if item.finished_at else "best so far"
    return [(when, _best(item) + fastest_single(item))]


def _screening(item: Campaign) -> list[tuple[str, str]]:
    """Return how many nodes or layers the search uses instead of all, and the result of that; empty
    if it uses all."""
    screening = item.screening
    if screening is None or (screening.nodes is None and screening.layers is None):
        return []
    what = "on few nodes" if screening.layers is None else "few layers"
    return [(what, f"{screening.reason} {screening.outcome}".strip())]


def reasons(explanation: Explanation) -> Table:
    """Return why the best is best, or why every trial failed, one sentence per row."""
    word = "why nothing ran" if explanation.failures else "why"
    marked = f"{word} ({mark(True)})" if explanation.simulated else word
    first, *others = explanation.sentences
    return facts([(marked, first), *(("", sentence) for sentence in others)])


def winners(comparison: CampaignComparison) -> Group:
    """Return one row per campaign: its best, and what finding it cost."""
    columns: TableColumns[ComparedCampaign] = (
        (">id", lambda each: each.campaign_id),
        ("name", lambda each: each.name or NO_VALUE),
        ("search", search_of),
        ("outcome", lambda each: outcome_of(each.state, found=each.winner is not None)),
        ("best", lambda each: strategy_line(each.winner.strategy) if each.winner else NO_VALUE),
        (">rate", _rate),
        (">MFU", lambda each: percent(each.winner.metrics.mfu) if each.winner else NO_VALUE),
        (">failed", lambda each: f"{each.failures}/{each.trials}"),
        (">node-hours", lambda each: figure(each.node_hours)),
        ("", lambda each: mark(each.simulated)),
    )
    return table(comparison.campaigns, columns)


def search_of(each: ComparedCampaign) -> str:
    return f"{each.search} ({each.surrogate})" if each.surrogate else each.search


def _rate(each: ComparedCampaign) -> str:
    if each.winner is None:
        return NO_VALUE
    reached = getattr(each.winner.metrics, each.objective)
    return with_unit(reached, OBJECTIVE_UNITS[each.objective])


def offers(offered: FigureOffers) -> Group:
    """Return one row per kind: what it shows, or why it is not available."""
    return table(
        offered.figures,
        (
            ("kind", lambda each: each.name),
            ("shows", lambda each: each.shows),
            (
                "of this campaign",
                lambda each: f"none: {each.missing}" if each.missing else Text("yes", "green"),
            ),
        ),
    )


def figure_data(found: Mapping[str, Any]) -> Group:
    said = found["title"] + (" (simulated)" if found["simulated"] else "")
    told = FigureTable.model_validate(found["table"])
    return Group(Text(said, style="bold"), Text(found["caption"]), Text(), figure_rows(told))


def figure_rows(told: FigureTable) -> Group:
    return grid(told.columns, told.rows)


def trials(items: Sequence[Trial]) -> Group:
    """Return one row per trial. Jobs and energy have columns only if there are any."""
    with_jobs = any(item.job_id for item in items)
    with_energy = any(item.gpu_joules_per_token is not None for item in items)
    columns: list[tuple[str, Callable[[Trial], Cell]]] = [
        (">no", lambda item: item.number),
        ("=purpose", lambda item: item.purpose),
        ("=state", lambda item: item.phase or item.state.value),
        ("·strategy", lambda item: strategy_line(item.strategy) + _stands_for(item)),
        (">s/iteration", _measured(lambda metrics: seconds(metrics.iteration_time_s))),
        (">tokens/s", _measured(lambda metrics: figure(metrics.tokens_per_s))),
        (">peak GiB", _measured(lambda metrics: figure(metrics.peak_memory_gib))),
    ]
    if with_energy:
        columns.append((">GPU J/token", lambda item: figure(item.gpu_joules_per_token)))
    if with_jobs:
        columns.append(("job", lambda item: item.job_id or NO_VALUE))
    columns.append(("…remark", lambda i: i.error or i.phase_reason or another_model(i.metrics)))
    return table(items, columns)


def _measured(cell: Callable[[TrialMetrics], str]) -> Callable[[Trial], str]:
    return lambda item: cell(item.metrics) if item.metrics else NO_VALUE


def choices(items: Sequence[Trial]) -> Group:
    """Return why each trial was chosen, without those for which this is unknown."""
    columns: TableColumns[Trial] = (
        (">no", lambda item: item.number),
        ("why it was chosen", why_chosen),
    )
    return table(filter(why_chosen, items), columns)


def _stands_for(item: Trial) -> str:
    if not item.stands_for_nodes:
        return ""
    layers = f"{item.num_layers} layers, " if item.num_layers else ""
    return f" ({layers}for {item.stands_for_nodes} nodes)"


def trial(item: Trial) -> Table:
    """Return everything known about one trial."""
    energy = item.energy_note or NO_VALUE
    if item.gpu_joules_per_token is not None:
        energy = f"{item.gpu_joules_per_token:.3g} J/token by the GPUs ({item.energy_note})"
    memory = with_unit(item.predicted_memory_gib, "GiB on the fullest rank")
    predicted = f"{iteration_expected(item)} an iteration, {memory}"
    state = ": ".join(filter(None, [item.phase or item.state.value, item.phase_reason]))
    return facts(
        [
            ("trial", f"{item.number} of campaign {item.campaign_id} ({item.purpose})"),
            ("state", state),
            ("strategy", strategy_line(item.strategy) + _stands_for(item)),
            *([("chosen", why)] if (why := why_chosen(item)) else []),
            ("predicted", predicted),
            *(metrics_facts(item.metrics, simulated=item.simulated) if item.metrics else []),
            ("duration", seconds(item.duration_s)),
            ("energy", energy),
            *_parameters(item.metrics),
            *([("routing", item.metrics.routing)] if item.metrics and item.metrics.routing else []),
            ("job", item.job_id or NO_VALUE),
            ("host", item.host or NO_VALUE),
            ("log", item.log_path or NO_VALUE),
            *([("error", item.error)] if item.error else []),
        ]
    )


def _parameters(metrics: TrialMetrics | None) -> list[tuple[str, str]]:
    if metrics is None or metrics.trainer_parameters is None or metrics.model_parameters is None:
        return []
    told = f"{metrics.trainer_parameters:,} as the trainer counts them"
    warning = "; so it trains another model" if another_model(metrics) else ""
    return [("parameters", f"{told}, {metrics.model_parameters:,} were asked for{warning}")]


def metrics_facts(metrics: TrialMetrics, *, simulated: bool) -> list[tuple[str, str]]:
    efficiency = f", MFU {percent(metrics.mfu)}, HFU {percent(metrics.hfu)}" if metrics.mfu else ""
    return [
        (
            "iteration",
            f"{seconds(metrics.iteration_time_s)} {step_spread(metrics)}, {mark(simulated)}",
        ),
        (
            "throughput",
            f"{with_unit(metrics.tokens_per_s, 'tokens/s')}, "
            f"{with_unit(metrics.tokens_per_s_per_gpu, 'tokens/s')} per GPU",
        ),
        ("for a token", _for_a_token(metrics)),
        (
            "model FLOPs",
            f"{with_unit(metrics.model_tflops_per_gpu, 'TFLOP/s')} per GPU{efficiency}",
        ),
        ("global batch", f"{metrics.global_batch_size} samples"),
        ("peak memory", with_unit(metrics.peak_memory_gib, "GiB on the fullest rank")),
    ]


def _for_a_token(metrics: TrialMetrics) -> str:
    million = with_unit(1e6 / metrics.tokens_per_node_hour, "node-hours a million tokens")
    if metrics.tokens_per_joule is None:
        return million
    how = energy_origin(sampled=metrics.energy_sampled)
    joules = with_unit(1 / metrics.tokens_per_joule, "J a token")
    return f"{million}; {joules}, hosts included ({how})"


def baseline(item: Baseline) -> Table:
    return facts(_baseline(item))


def _baseline(item: Baseline | None) -> list[tuple[str, str]]:
    if item is None:
        return []
    figures = f": {with_unit(item.metrics.tokens_per_s, 'tokens/s')}" if item.metrics else ""
    return [
        ("baseline", f"{strategy_line(item.strategy)}{figures}"),
        ("against it", item.comparison),
    ]


def recommendation(answer: Recommendation) -> RenderableType:
    """Return the best strategy, the predicted training with it, and the runners-up."""
    status = "provisional" if answer.provisional else "confirmed by another run"
    if not answer.provisional and not answer.best.confirmed:
        status = "run once"
    if answer.best.projected_from_nodes:
        in_full = "in full" if answer.best.projected_from_layers else "on its own yet"
        status = f"{projected_from(answer.best)}, not run {in_full}"
    best = [
        ("best", strategy_line(answer.best.strategy)),
        *metrics_facts(answer.best.metrics, simulated=answer.simulated),
        ("status", status),
        *_training(answer.training),
        (
            "found by",
            f"{answer.trials} trials, {answer.failures} failed, "
            f"{with_unit(answer.node_hours, 'node-hours')}",
        ),
        ("files", ", ".join(answer.artefacts)),
        *([("launch", answer.launch.remark)] if answer.launch else []),
    ]
    return Group(
        facts([*best, *_standing(answer)]),
        *(
            [_neighbours(answer.standing, simulated=answer.simulated)]
            if answer.standing and answer.standing.neighbours
            else []
        ),
        *([baseline(answer.baseline)] if answer.baseline else []),
        *([_runners_up(answer.runners_up)] if answer.runners_up else []),
        *fronts(answer),
        *(Text(f"note: {caveat}") for caveat in answer.caveats),
    )


FRONTS: Mapping[ParetoCost, str] = {
    "num_nodes": "fastest on this many nodes",
    "joules_per_token": "fastest at this energy",
}


def fronts(answer: Recommendation) -> Iterator[Group]:
    for front in answer.pareto:
        if len(front.points) > 1:
            yield _front(front)


def _front(front: ParetoFront) -> Group:
    with_energy = any(point.joules_per_token is not None for point in front.points)

    def notes(point: FrontPoint) -> str:
        predicted = with_energy and not point.energy_sampled
        said = ("" if point.confirmed else "not confirmed", "energy predicted" if predicted else "")
        return ", ".join(filter(None, said))

    columns: list[tuple[str, Callable[[FrontPoint], Cell]]] = [
        (f"·{FRONTS[front.against]}", lambda point: strategy_line(point.strategy)),
        (">nodes", lambda point: point.strategy.num_nodes),
        (">tokens/s", lambda point: figure(point.tokens_per_s)),
    ]
    if with_energy:
        columns.append((">J/token, hosts included", lambda point: figure(point.joules_per_token)))
    return table(front.points, [*columns, ("", notes)])


def recommendation_in_brief(answer: Recommendation) -> Table:
    """Return the key metrics, without runners-up and caveats."""
    metrics = answer.best.metrics
    utilisation = f" · MFU {percent(metrics.mfu)}" if metrics.mfu else ""
    return facts(
        [
            ("best layout", strategy_line(answer.best.strategy)),
            ("throughput", f"{with_unit(metrics.tokens_per_s, 'tokens/s')}{utilisation}"),
            ("iteration", f"{seconds(metrics.iteration_time_s)} ({mark(answer.simulated)})"),
            ("peak memory", with_unit(metrics.peak_memory_gib, "GiB on the fullest rank")),
            *_standing(answer),
            *_baseline(answer.baseline),
            ("to train", _cost(answer.training) + _saving(answer.saving)),
            ("found by", f"{answer.trials} trials, {answer.failures} of them failed"),
        ]
    )


def outlook(answer: Recommendation) -> Table:
    return facts([*_standing(answer), *_training(answer.training)])


def _standing(answer: Recommendation) -> list[tuple[str, str]]:
    if answer.standing is None:
        return []
    origin = "Simulated: " if answer.simulated else ""
    return [("in its space", f"{origin}{answer.standing.sentence}")]


def _neighbours(found: SpaceStanding, *, simulated: bool) -> Group:
    def interval(item: Neighbour) -> str:
        low, high = item.relative_low, item.relative_high
        return NO_VALUE if low is None else f"{percent(low)} to {percent(high)}"

    columns: TableColumns[Neighbour] = (
        ("one step away", lambda item: item.step),
        ("", lambda item: neighbour_state(item, simulated=simulated)),
        (">of the best", lambda item: percent(item.relative_to_best)),
        (">80 % interval", interval),
        (">fits", fits),
    )
    return table(found.neighbours, columns)


def runner_up(answer: Recommendation, item: Ranked) -> Table:
    """Return a strategy after the best, and how it compares with it."""
    return facts(
        [
            (f"rank {item.rank}", strategy_line(item.strategy)),
            *metrics_facts(item.metrics, simulated=answer.simulated),
            ("status", standing_of(item)),
            ("of the best", percent(item.relative_to_best)),
            ("the best", strategy_line(answer.best.strategy)),
        ]
    )


def _cost(training: TrainingCost) -> str:
    assumed = " (assumed: 20 for each parameter; --tokens of submit says how many)"
    return (
        f"{parameters(training.tokens)} tokens{assumed if training.assumed else ''}: "
        f"{figure(training.days)} days, {with_unit(training.node_hours, 'node-hours')}"
    )


def _training(training: TrainingCost) -> list[tuple[str, str]]:
    energy = training_energy(training)
    return [("to train", _cost(training)), *([("energy", energy)] if energy else [])]


def _saving(saving: TrainingSaving | None) -> str:
    if saving is None or saving.days <= 0.0:
        return ""
    node_hours = with_unit(saving.node_hours, "node-hours")
    return f"; {figure(saving.days)} days and {node_hours} less than with the baseline"


def _runners_up(items: Sequence[Ranked]) -> Group:
    columns: TableColumns[Ranked] = (
        (">rank", lambda item: item.rank),
        ("·runners-up", lambda item: strategy_line(item.strategy)),
        (">tokens/s", lambda item: figure(item.metrics.tokens_per_s)),
        (">of the best", lambda item: percent(item.relative_to_best)),
        (">peak GiB", lambda item: figure(item.metrics.peak_memory_gib)),
        ("", standing_of),
    )
    return table(items, columns)
