"""Campaigns as text."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from autotune.campaign_outcome import outcome_of_campaign
from autotune.objectives import OBJECTIVE_UNITS
from autotune.schemas.campaigns import Campaign
from autotune.schemas.explanations import Explanation
from server.cli.tables.elements import (
    NO_VALUE,
    facts,
    figure,
    mark,
    model_line,
    moment,
    percent,
    said_once,
    started_from,
    strategy_line,
    with_unit,
    without_common,
)
from server.wording import best_origin, best_projected_from, fastest_single


def campaigns(items: Sequence[Campaign]) -> Group:
    """Return one row per campaign: its question, its state, and its recommendation so far;
    dimensions shared by all recommended layouts are shown once."""
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
    """Return the recommendation's metric with its unit; for a scaling study, its description."""
    if item.request.study is not None:
        return NO_VALUE, f"{' and '.join(item.request.study.kinds)} scaling"
    return figure(item.best_objective), OBJECTIVE_UNITS[item.request.objective]


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
            ("outcome", ": ".join(filter(None, [_outcome(item), item.reason]))),
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
