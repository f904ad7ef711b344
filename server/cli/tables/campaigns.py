"""Campaigns, trials and recommendations as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.campaign_outcome import outcome_of_campaign
from autotune.objectives import OBJECTIVE_UNITS
from autotune.schemas import (
    Baseline,
    Campaign,
    Explanation,
    ParetoCost,
    ParetoFront,
    Ranked,
    Recommendation,
    SpaceStanding,
    TrainingCost,
    Trial,
    TrialMetrics,
)
from server.cli.tables.elements import (
    NO_VALUE,
    facts,
    figure,
    headed,
    iteration_expected,
    mark,
    moment,
    parameters,
    percent,
    said_once,
    seconds,
    started_from,
    strategy_line,
    why_chosen,
    with_unit,
    without_common,
)
from server.dashboard.wording import (
    best_origin,
    best_projected_from,
    fastest_single,
    fits,
    neighbour_state,
    projected_from,
    standing_of,
)


def campaigns(items: Sequence[Campaign]) -> Group:
    """Return a row for each campaign: what it asks, what it has come to, and what it recommends so
    far; what all recommended layouts share is said once."""
    columns = (
        *(">id", "name", "=outcome", "=model", "=machine", "=>nodes", ">trials", ">failed"),
        *("=winner", ">best", "=", ">MFU", "=figures", "…why"),
    )
    found = [strategy_line(item.best_strategy) for item in items if item.best_strategy]
    shared, own = without_common(found or [""])
    winners = iter(own)
    above = [Text(f"all winners: {shared}", style="dim")] if shared else []
    rows = [
        [
            str(item.id),
            item.name or NO_VALUE,
            _outcome(item),
            item.model.name,
            item.machine.name,
            str(item.request.nodes),
            f"{item.trials}/{item.request.budget.max_trials}",
            str(item.failures),
            next(winners) if item.best_strategy else NO_VALUE,
            *_listed_figure(item),
            percent(item.best_mfu),
            best_origin(item),
            item.reason,
        ]
        for item in items
    ]
    return Group(*above, said_once(columns, rows))


def _outcome(item: Campaign) -> str:
    return outcome_of_campaign(item)


def _listed_figure(item: Campaign) -> tuple[str, str]:
    """Return the figure of what is recommended so far, with its unit; of a scaling study, what it
    is."""
    if item.request.study is not None:
        return NO_VALUE, f"{' and '.join(item.request.study.kinds)} scaling"
    return figure(item.best_objective), OBJECTIVE_UNITS[item.request.objective]


def campaign(item: Campaign) -> Table:
    """Return what was asked of a campaign, and how far it is."""
    slurm, ray = item.request.slurm, item.request.ray
    profile = f": profile {slurm.profile}, {slurm.mode}" if slurm else ""
    if ray:
        named = [ray.address, f"profile {ray.profile}" if ray.profile else ""]
        profile = f": {', '.join(filter(None, named))}"
    waiting = f" ({item.waiting} of them waiting for nodes)" if item.waiting else ""
    start = started_from(item)
    return facts(
        [
            ("campaign", f"{item.id} {item.name}".strip()),
            ("outcome", ": ".join(filter(None, [_outcome(item), item.reason]))),
            ("model", item.model.name),
            ("machine", f"{item.machine.name}, at most {item.request.nodes} nodes"),
            ("evaluator", f"{item.request.evaluator}{profile} ({mark(item.simulated)})"),
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
    """Return the recommended layout's figure, and from what it is projected."""
    reached = with_unit(item.best_objective, OBJECTIVE_UNITS[item.request.objective])
    return ", ".join(filter(None, [reached, best_projected_from(item)]))


def _leading(item: Campaign) -> list[tuple[str, str]]:
    """Return what is recommended so far; of a scaling study, what it measures."""
    study = item.request.study
    if study is not None:
        kinds, nodes = " and ".join(study.kinds), ", ".join(map(str, study.nodes))
        layouts = (
            strategy_line(strategy) + (f" (like campaign {study.like})" if study.like else "")
            for strategy in study.strategies
        )
        return [(f"{kinds} scaling", f"on {nodes} nodes"), *(("of", each) for each in layouts)]
    when = "recommended" if item.finished_at else "best so far"
    return [(when, _best(item) + fastest_single(item))]


def _screening(item: Campaign) -> list[tuple[str, str]]:
    """Return on how few nodes, or with how few layers, it searches, and what came of it; nothing
    where it does not."""
    screening = item.screening
    if screening is None or (screening.nodes is None and screening.layers is None):
        return []
    what = "on few nodes" if screening.layers is None else "few layers"
    return [(what, f"{screening.reason} {screening.outcome}".strip())]


def trials(items: Sequence[Trial]) -> Group:
    """Return a row for each trial; jobs and energy have columns where there are any, and what all
    strategies share is said once."""
    with_jobs = any(item.job_id for item in items)
    with_energy = any(item.gpu_joules_per_token is not None for item in items)
    columns = (
        *(">no", "=purpose", "=state", "strategy", ">s/iteration", ">tokens/s", ">peak GiB"),
        *([">GPU J/token"] if with_energy else []),
        *(["job"] if with_jobs else []),
        "…remark",
    )
    shared, own = without_common([strategy_line(item.strategy) for item in items] or [""])
    rows = []
    for item, strategy in zip(items, own, strict=False):
        metrics = item.metrics
        row = [
            str(item.number),
            item.purpose,
            item.phase or item.state.value,
            strategy + _stands_for(item),
            seconds(metrics.iteration_time_s) if metrics else NO_VALUE,
            figure(metrics.tokens_per_s) if metrics else NO_VALUE,
            figure(metrics.peak_memory_gib) if metrics else NO_VALUE,
            *([figure(item.gpu_joules_per_token)] if with_energy else []),
            *([item.job_id or NO_VALUE] if with_jobs else []),
            item.error or item.phase_reason,
        ]
        rows.append(row)
    return _below("all strategies", shared, said_once(columns, rows))


def choices(items: Sequence[Trial]) -> Table:
    """Return for each trial why it was chosen, those left out of which that is not known."""
    table = headed(">no", "why it was chosen")
    for item in items:
        if why := why_chosen(item):
            table.add_row(str(item.number), Text(why))
    return table


def _stands_for(item: Trial) -> str:
    if not item.stands_for_nodes:
        return ""
    layers = f"{item.num_layers} layers, " if item.num_layers else ""
    return f" ({layers}for {item.stands_for_nodes} nodes)"


def trial(item: Trial) -> Table:
    """Return all that is known of one trial."""
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
            *(_metrics(item.metrics, simulated=item.simulated) if item.metrics else []),
            ("duration", seconds(item.duration_s)),
            ("energy", energy),
            ("job", item.job_id or NO_VALUE),
            ("host", item.host or NO_VALUE),
            ("log", item.log_path or NO_VALUE),
            *([("error", item.error)] if item.error else []),
        ]
    )


def _metrics(metrics: TrialMetrics, *, simulated: bool) -> list[tuple[str, str]]:
    efficiency = f", MFU {percent(metrics.mfu)}, HFU {percent(metrics.hfu)}" if metrics.mfu else ""
    spread = seconds(metrics.iteration_time_spread_s)
    return [
        ("iteration", f"{seconds(metrics.iteration_time_s)} ± {spread}, {mark(simulated)}"),
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
    """Return the inverse of the two rates that are of what a token costs."""
    million = with_unit(1e6 / metrics.tokens_per_node_hour, "node-hours a million tokens")
    if metrics.tokens_per_joule is None:
        return million
    how = _energy_origin(metrics.energy_sampled)
    joules = with_unit(1 / metrics.tokens_per_joule, "J a token")
    return f"{million}; {joules}, hosts included ({how})"


def baseline(item: Baseline) -> Table:
    """Return the layout that the result is told against, and how it stands."""
    figures = f": {with_unit(item.metrics.tokens_per_s, 'tokens/s')}" if item.metrics else ""
    return facts(
        [
            ("baseline", f"{strategy_line(item.strategy)}{figures}"),
            ("against it", item.comparison),
        ]
    )


def reasons(explanation: Explanation) -> Table:
    """Return why the best won, or why nothing ran, a sentence in each row."""
    word = "why nothing ran" if explanation.failures else "why"
    marked = f"{word} ({mark(True)})" if explanation.simulated else word
    first, *others = explanation.sentences
    return facts([(marked, first), *(("", sentence) for sentence in others)])


def recommendation(answer: Recommendation) -> RenderableType:
    """Return the best strategy, what training with it would take, and those behind it."""
    status = "provisional" if answer.provisional else "confirmed by another run"
    if not answer.provisional and not answer.best.confirmed:
        status = "run once"
    if answer.best.projected_from_nodes:
        in_full = "in full" if answer.best.projected_from_layers else "on its own yet"
        status = f"{projected_from(answer.best)}, not run {in_full}"
    best = [
        ("best", strategy_line(answer.best.strategy)),
        *_metrics(answer.best.metrics, simulated=answer.simulated),
        ("status", status),
        ("to train", _cost(answer.training) + _energy(answer.training)),
        (
            "found by",
            f"{answer.trials} trials, {answer.failures} failed, "
            f"{with_unit(answer.node_hours, 'node-hours')}",
        ),
        ("files", ", ".join(answer.artefacts)),
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
    "num_nodes": "fastest on so many nodes",
    "joules_per_token": "fastest for so much energy",
}


def fronts(answer: Recommendation) -> Iterator[Group]:
    """Yield a table of each front of more than one layout."""
    for front in answer.pareto:
        if len(front.points) > 1:
            yield _front(front)


def _front(front: ParetoFront) -> Group:
    with_energy = any(point.joules_per_token is not None for point in front.points)
    table = headed(
        *(FRONTS[front.against], ">nodes", ">tokens/s"),
        *([">J/token, hosts included"] if with_energy else []),
        "",
    )
    shared, own = without_common([strategy_line(point.strategy) for point in front.points])
    for point, strategy in zip(front.points, own, strict=True):
        notes = [] if point.confirmed else ["not confirmed"]
        if with_energy and not point.energy_sampled:
            notes.append("energy predicted")
        table.add_row(
            strategy,
            str(point.strategy.num_nodes),
            figure(point.tokens_per_s),
            *([figure(point.joules_per_token)] if with_energy else []),
            ", ".join(notes),
        )
    return _below("all of them", shared, table)


def _below(whose: str, shared: str, table: RenderableType) -> Group:
    """Return a table below what its strategies share."""
    return Group(*([Text(f"{whose}: {shared}", style="dim")] if shared else []), table)


def recommendation_in_brief(answer: Recommendation) -> Table:
    """Return the figures that matter, without runners-up and caveats."""
    metrics = answer.best.metrics
    utilisation = f" · MFU {percent(metrics.mfu)}" if metrics.mfu else ""
    return facts(
        [
            ("best layout", strategy_line(answer.best.strategy)),
            ("throughput", f"{with_unit(metrics.tokens_per_s, 'tokens/s')}{utilisation}"),
            ("iteration", f"{seconds(metrics.iteration_time_s)} ({mark(answer.simulated)})"),
            ("peak memory", with_unit(metrics.peak_memory_gib, "GiB on the fullest rank")),
            *_standing(answer),
            *([("baseline", answer.baseline.comparison)] if answer.baseline else []),
            ("to train", _cost(answer.training)),
            ("found by", f"{answer.trials} trials, {answer.failures} of them failed"),
        ]
    )


def standing(answer: Recommendation) -> Table:
    """Return how sure it is that there is nothing better."""
    return facts(_standing(answer))


def _standing(answer: Recommendation) -> list[tuple[str, str]]:
    if answer.standing is None:
        return []
    origin = "Simulated: " if answer.simulated else ""
    return [("in its space", f"{origin}{answer.standing.sentence}")]


def _neighbours(found: SpaceStanding, *, simulated: bool) -> Table:
    table = headed("one step away", "", ">of the best", ">80 % interval", ">fits")
    for item in found.neighbours:
        low, high = item.relative_low, item.relative_high
        interval = NO_VALUE if low is None else f"{percent(low)} to {percent(high)}"
        table.add_row(
            item.step,
            neighbour_state(item, simulated=simulated),
            percent(item.relative_to_best),
            interval,
            fits(item),
        )
    return table


def runner_up(answer: Recommendation, item: Ranked) -> Table:
    """Return a strategy behind the best, and how it stands against that."""
    return facts(
        [
            (f"rank {item.rank}", strategy_line(item.strategy)),
            *_metrics(item.metrics, simulated=answer.simulated),
            ("status", standing_of(item)),
            ("of the best", percent(item.relative_to_best)),
            ("the best", strategy_line(answer.best.strategy)),
        ]
    )


def _cost(training: TrainingCost) -> str:
    return (
        f"{parameters(training.tokens)} tokens: {figure(training.days)} days, "
        f"{with_unit(training.node_hours, 'node-hours')}"
    )


def _energy(training: TrainingCost) -> str:
    if training.energy_mwh is None:
        return ""
    energy = with_unit(training.energy_mwh, "MWh")
    return f", {energy}, hosts included ({_energy_origin(training.energy_sampled)})"


def _energy_origin(sampled: bool) -> str:
    return "sampled at the GPUs" if sampled else "predicted"


def _runners_up(items: Sequence[Ranked]) -> Group:
    table = headed(">rank", "runners-up", ">tokens/s", ">of the best", ">peak GiB", "")
    shared, own = without_common([strategy_line(item.strategy) for item in items])
    for item, strategy in zip(items, own, strict=True):
        table.add_row(
            str(item.rank),
            strategy,
            figure(item.metrics.tokens_per_s),
            percent(item.relative_to_best),
            figure(item.metrics.peak_memory_gib),
            standing_of(item),
        )
    return _below("all runners-up", shared, table)
