"""Campaigns, comparisons of campaigns, and their figures as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.campaign_outcome import outcome_of, outcome_of_campaign
from autotune.objectives import OBJECTIVE_UNITS
from autotune.schemas.campaigns import Campaign
from autotune.schemas.comparisons import CampaignComparison, ComparedCampaign
from autotune.schemas.explanations import Explanation
from autotune.schemas.figures import FigureOffers, FigureTable
from server.cli.tables.elements import (
    NO_VALUE,
    facts,
    figure,
    grid,
    mark,
    model_line,
    moment,
    percent,
    started_from,
    strategy_line,
    table,
    with_unit,
)
from server.wording import best_origin, best_projected_from, fastest_single


def campaigns(items: Sequence[Campaign]) -> Group:
    """Return one row per campaign: its question, its state, and its recommendation so far."""
    return table(
        items,
        (
            (">id", lambda item: str(item.id)),
            ("name", lambda item: item.name or NO_VALUE),
            ("=outcome", outcome_of_campaign),
            ("=model", lambda item: item.model.name),
            ("=machine", lambda item: item.machine.name),
            ("=>nodes", lambda item: str(item.request.nodes)),
            (">trials", lambda item: f"{item.trials}/{item.request.budget.max_trials}"),
            (">failed", lambda item: str(item.failures)),
            (
                "=·best layout",
                lambda item: strategy_line(item.best_strategy) if item.best_strategy else NO_VALUE,
            ),
            (">best", lambda item: NO_VALUE if item.request.study else figure(item.best_objective)),
            ("=", _listed_unit),
            (">MFU", lambda item: percent(item.best_mfu)),
            ("=figures", best_origin),
            ("…why", lambda item: item.reason),
        ),
    )


def _listed_unit(item: Campaign) -> str:
    """Return the unit of the recommendation's metric; for a scaling study, its description."""
    if item.request.study is not None:
        return f"{' and '.join(item.request.study.kinds)} scaling"
    return OBJECTIVE_UNITS[item.request.objective]


def campaign(item: Campaign) -> Table:
    """Return a campaign's request and progress."""
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
            ("outcome", ": ".join(filter(None, [outcome_of_campaign(item), item.reason]))),
            ("model", model_line(item.model)),
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
    """Return the recommended layout's metric, and what it was projected from."""
    reached = with_unit(item.best_objective, OBJECTIVE_UNITS[item.request.objective])
    return ", ".join(filter(None, [reached, best_projected_from(item)]))


def _leading(item: Campaign) -> list[tuple[str, str]]:
    """Return the current recommendation; for a scaling study, what it measures."""
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
    columns: tuple[tuple[str, Callable[[ComparedCampaign], str]], ...] = (
        (">id", lambda each: str(each.campaign_id)),
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
    """Return the search method: `calibrated`, `deephyper (forest)`."""
    return f"{each.search} ({each.surrogate})" if each.surrogate else each.search


def _rate(each: ComparedCampaign) -> str:
    if each.winner is None:
        return NO_VALUE
    reached = getattr(each.winner.metrics, each.objective)
    return with_unit(reached, OBJECTIVE_UNITS[each.objective])


def differences(comparison: CampaignComparison) -> RenderableType:
    """Return one row per field that differs between the requests."""
    if not comparison.differences:
        return "The requests do not differ."
    ids = (f"campaign {each.campaign_id}" for each in comparison.campaigns)
    rows = [[each.field, *each.values] for each in comparison.differences]
    return grid(["request differs in", *ids], rows)


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
    """Return a figure's title, its sentence and its table."""
    said = found["title"] + (" (simulated)" if found["simulated"] else "")
    told = FigureTable.model_validate(found["table"])
    return Group(Text(said, style="bold"), Text(found["caption"]), Text(), figure_rows(told))


def figure_rows(told: FigureTable) -> Group:
    return grid(told.columns, told.rows)
