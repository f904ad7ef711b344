"""Comparisons of campaigns as text."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from autotune.campaign_outcome import outcome_of
from autotune.objectives import OBJECTIVE_UNITS
from autotune.schemas.comparisons import CampaignComparison, ComparedCampaign
from server.cli.tables.elements import (
    NO_VALUE,
    figure,
    headed,
    mark,
    percent,
    strategy_line,
    with_unit,
)


def winners(comparison: CampaignComparison) -> RenderableType:
    """Return one row per campaign: its best, and what finding it cost."""
    table = headed(
        ">id", "name", "search", "outcome", "best", ">rate", ">MFU", ">failed", ">node-hours", ""
    )
    for each in comparison.campaigns:
        table.add_row(
            str(each.campaign_id),
            Text(each.name or NO_VALUE),
            search_of(each),
            outcome_of(each.state, found=each.winner is not None),
            *_found(each),
            f"{each.failures}/{each.trials}",
            figure(each.node_hours),
            mark(each.simulated),
        )
    return table


def search_of(each: ComparedCampaign) -> str:
    """Return the search method: `calibrated`, `deephyper (forest)`."""
    return f"{each.search} ({each.surrogate})" if each.surrogate else each.search


def _found(each: ComparedCampaign) -> tuple[str, str, str]:
    if each.winner is None:
        return (NO_VALUE, NO_VALUE, NO_VALUE)
    metrics = each.winner.metrics
    return (
        strategy_line(each.winner.strategy),
        with_unit(getattr(metrics, each.objective), OBJECTIVE_UNITS[each.objective]),
        percent(metrics.mfu),
    )


def differences(comparison: CampaignComparison) -> RenderableType:
    """Return one row per field that differs between the requests."""
    if not comparison.differences:
        return "Nothing was asked differently."
    ids = (f"campaign {each.campaign_id}" for each in comparison.campaigns)
    table = headed("asked differently", *ids)
    for each in comparison.differences:
        table.add_row(each.field, *map(Text, each.values))
    return table
