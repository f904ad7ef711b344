"""Figures of a campaign as text: the sentence and the table of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from autotune.schemas.figures import FigureOffers, FigureTable
from server.cli.tables.elements import headed


def offers(offered: FigureOffers) -> Table:
    """Return one row per kind: what it shows, or why it is not available."""
    table = headed("kind", "shows", "of this campaign")
    for each in offered.figures:
        stands = Text(f"none: {each.missing}") if each.missing else Text("yes", style="green")
        table.add_row(each.name, Text(each.shows), stands)
    return table


def figure(found: Mapping[str, Any]) -> Group:
    """Return a figure's title, its sentence and its table."""
    said = found["title"] + (" (simulated)" if found["simulated"] else "")
    told = FigureTable.model_validate(found["table"])
    return Group(Text(said, style="bold"), Text(found["caption"]), Text(), rows_of(told))


def rows_of(told: FigureTable) -> Table:
    """Return a figure's table."""
    table = headed()
    for column in told.columns:
        table.add_column(Text(column), overflow="fold")
    for row in told.rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
