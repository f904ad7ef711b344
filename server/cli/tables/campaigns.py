"""Campaigns, their trials and figures, comparisons and recommendations as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.answers.campaign import (
    best_origin,
    best_projected_from,
    fastest_single,
    origin,
    reason_in_brief,
    searched_by,
    started_from,
    surrogate_start,
)
from autotune.answers.layout import utilisation
from autotune.answers.recommendation import (
    against,
    best_facts,
    costs,
    front,
    knob_rows,
    knob_sentence,
    neighbours,
    noise,
    runner_up_with_knobs,
    runners_up,
    standing_of,
    verdicts,
)
from autotune.answers.trial import metrics_facts, stands_for, trial_facts, why_chosen
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
    Ranked,
    Recommendation,
)
from autotune.schemas.trials import Trial, TrialMetrics
from autotune.words.quantities import figure, mark, nodes_of, percent, plural, seconds
from search_spaces.machine import Machine
from server.cli.tables.elements import (
    NO_VALUE,
    Cell,
    TableColumns,
    facts,
    model_line,
    moment,
    rows,
    table,
    with_unit,
)


def campaigns(items: Sequence[Campaign]) -> Group:
    """Return one row per campaign: its question, its state, and its recommendation so far."""
    return table(
        items,
        (
            (">id", lambda item: item.id),
            ("…name", lambda item: item.name or NO_VALUE),
            ("=outcome", outcome_of_campaign),
            ("=model", lambda item: item.model.name),
            ("=machine", lambda item: item.machine.name),
            ("=>nodes", lambda item: item.request.nodes),
            (">trials", lambda item: f"{item.trials}/{item.request.budget.max_trials}"),
            (">failed", lambda item: item.failures),
            (
                "=·…best layout",
                lambda item: item.best_strategy.short() if item.best_strategy else NO_VALUE,
            ),
            (">best", lambda item: figure(item.best_objective)),
            ("=", _listed_unit),
            (">MFU", lambda item: utilisation(item.best_mfu, item.best_strategy)),
            ("=figures", best_origin),
            ("…why", reason_in_brief),
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
    of_knobs = f"{plural(item.knob_starts, 'start')} of knobs, " if item.knob_starts else ""
    waiting = f" ({item.waiting} of them waiting for nodes)" if item.waiting else ""
    start, own, surrogate = started_from(item), baseline_line(item), surrogate_start(item)
    return facts(
        [
            ("campaign", f"{item.id} {item.name}".strip()),
            ("outcome", ": ".join(filter(None, [outcome_of_campaign(item), item.reason]))),
            ("model", model_line(item.model)),
            ("machine", f"{item.machine.name}, at most {nodes_of(item.request.nodes)}"),
            ("evaluator", f"{item.request.evaluator}{profile} ({origin(item)})"),
            *([("baseline", own)] if own else []),
            (
                "trials",
                f"{item.trials} of {item.request.budget.max_trials}, {item.failures} failed, "
                f"{item.confirmations} confirmations, {of_knobs}{item.pending} open{waiting}",
            ),
            *([("surrogate", surrogate)] if surrogate else []),
            *([("started from", start)] if start else []),
            *_screening(item),
            ("node-hours", figure(item.node_hours)),
            ("created", moment(item.created_at)),
            *(_leading(item) if not item.is_imported else []),
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
        ("search", searched_by),
        ("outcome", lambda each: outcome_of(each.state, found=each.winner is not None)),
        ("best", lambda each: each.winner.strategy.short() if each.winner else NO_VALUE),
        (">rate", _rate),
        (">MFU", _mfu),
        (">failed", lambda each: f"{each.failures}/{each.trials}"),
        (">node-hours", lambda each: figure(each.node_hours)),
        ("", lambda each: mark(each.simulated)),
    )
    return table(comparison.campaigns, columns)


def _mfu(each: ComparedCampaign) -> str:
    best = each.winner
    return utilisation(best.metrics.mfu, best.strategy) if best else NO_VALUE


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
    title = found["title"] + (" (simulated)" if found["simulated"] else "")
    table = FigureTable.model_validate(found["table"])
    return Group(Text(title, style="bold"), Text(found["caption"]), Text(), rows(table))


def trials(items: Sequence[Trial]) -> Group:
    """Return one row per trial. Jobs and energy have columns only if there are any."""
    with_jobs = any(item.job_id for item in items)
    with_energy = any(item.gpu_joules_per_token is not None for item in items)
    columns: list[tuple[str, Callable[[Trial], Cell]]] = [
        (">no", lambda item: item.number),
        ("=purpose", lambda item: item.purpose),
        ("=state", lambda item: item.phase or item.state.value),
        ("·layout", lambda item: item.strategy.short() + stands_for(item)),
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


def trial(item: Trial, machine: Machine) -> Table:
    """Return everything known about one trial."""
    state = ": ".join(filter(None, [item.phase or item.state.value, item.phase_reason]))
    why = why_chosen(item)
    return facts(
        [
            ("Trial", f"{item.number} of campaign {item.campaign_id} ({item.purpose})"),
            ("State", state),
            ("Layout", item.strategy.short() + stands_for(item)),
            *([("Why it was chosen", why)] if why else []),
            *trial_facts(item, machine),
            *([("Error", item.error)] if item.error else []),
        ]
    )


def recommendation(answer: Recommendation) -> RenderableType:
    """Return the best strategy, the predicted training with it, and the runners-up."""
    launch = [("Launch", answer.launch.remark)] if answer.launch else []
    simulated = [SIMULATED] if answer.simulated else []
    best = [
        ("Best", answer.best.strategy.short()),
        *best_facts(answer),
        *verdicts(answer),
        *costs(answer),
        ("Files", ", ".join(answer.artefacts)),
        *launch,
    ]
    tables: list[tuple[str | None, FigureTable]] = [
        (None, neighbours(answer)),
        ("runners-up", runners_up(answer)),
    ]
    tables += [
        (FRONTS[each.against], front(each)) for each in answer.pareto if len(each.points) > 1
    ]
    return Group(
        facts(best),
        *(rows(each, title=title) for title, each in tables if each.rows),
        *knobs(answer),
        *(Text(f"note: {sentence}") for sentence in [*simulated, *answer.caveats]),
    )


def knobs(answer: Recommendation) -> Iterator[RenderableType]:
    """Yield the knobs that were adopted, all that were tried, and which differences are noise."""
    if answer.knobs:
        yield Text(" ".join([knob_sentence(answer.knobs), runner_up_with_knobs(answer)]).rstrip())
        yield rows(knob_rows(answer.knobs), title="knobs")
    if floor := noise(answer):
        yield Text(floor)


SIMULATED = "Simulated: every number is the cost model's with noise, not a measurement."

FRONTS: Mapping[ParetoCost, str] = {
    "num_nodes": "fastest on this many nodes",
    "joules_per_token": "fastest at this energy",
}


def outlook(answer: Recommendation) -> Table:
    """Return what follows from the best."""
    return facts([*verdicts(answer), *costs(answer)])


def baseline(item: Baseline) -> Table:
    """Return how a baseline did in a campaign without a recommendation."""
    return facts([("Baseline", against(item))])


def recommendation_in_brief(answer: Recommendation) -> Table:
    """Return the best layout and what follows from it, without runners-up and caveats."""
    best = [("Best", answer.best.strategy.short()), *best_facts(answer)]
    return facts([*best, *verdicts(answer), *costs(answer)])


def runner_up(answer: Recommendation, item: Ranked) -> Table:
    """Return a strategy after the best, and how it compares with it."""
    return facts(
        [
            (f"Rank {item.rank}", item.strategy.short()),
            *metrics_facts(item.metrics, origin=mark(answer.simulated), strategy=item.strategy),
            ("Status", standing_of(item)),
            ("Of the best", percent(item.relative_to_best)),
            ("The best", answer.best.strategy.short()),
        ]
    )
