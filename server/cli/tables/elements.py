"""Building blocks of tables: columns, facts, and metrics worded as on the pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TypeVar

from rich.console import Group
from rich.table import Table
from rich.text import Text

from autotune.answers.campaign import model_size
from autotune.schemas.figures import FigureTable
from autotune.schemas.plans import CampaignPlan
from autotune.schemas.predictions import Prediction
from autotune.words.quantities import figure, numeric_columns, plural
from search_spaces.catalog.models import meaning_of_size
from search_spaces.transformer import Transformer

T = TypeVar("T")
Cell = str | Text | int | None
TableColumns = Sequence[tuple[str, Callable[[T], Cell]]]
"""Heading and cell of each column; None is shown as a dash."""

NO_VALUE = "–"
LAYOUT_COLUMN = "Layout"


def table(
    items: Iterable[T],
    columns: TableColumns[T],
    *,
    title: str | None = None,
    failed: Callable[[T], bool] = lambda _: False,
) -> Group:
    """Return a table with one row per item.

    Args:
        columns: the headings may begin with the marks of `grid`.
        failed: whether to print an item's row in red.
    """
    headings, cells = zip(*columns, strict=True)
    shown = list(items)
    rows = [[_shown(cell(item)) for cell in cells] for item in shown]
    return grid(headings, rows, title=title, red=[failed(item) for item in shown])


def _shown(value: Cell) -> str | Text:
    if isinstance(value, int):
        return str(value)
    return NO_VALUE if value is None else value


def grid(
    headings: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    title: str | None = None,
    red: Sequence[bool] = (),
) -> Group:
    """Return a table of rows.

    Marks before a heading say how its column is shown:

    - `>`: numbers, right-aligned and never wrapped or truncated, however narrow the terminal
    - `|`: never wrapped
    - `…`: truncated if the terminal is narrow
    - `=`: shown once above the table if several rows agree
    - `·`: layouts; the parts that several rows share are shown once above the table
    """
    marks, names = zip(*(_marked(heading) for heading in headings), strict=True)
    cells = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in headings]
    shown, common = [], []
    for place, (signs, name) in enumerate(zip(marks, names, strict=True)):
        if "·" in signs:
            shared, own = without_common([str(cell) for cell in cells[place]])
            cells[place] = list(own)
            common += [shared] if shared else []
        if "=" in signs and len(rows) > 1 and len(set(map(str, cells[place]))) == 1:
            value = str(cells[place][0])
            common += [f"{name} {value}".strip()] if value not in ("", NO_VALUE) else []
        else:
            shown.append(place)
    found = Table(title=title, box=None, pad_edge=False, title_justify="left", header_style="bold")
    for place in shown:
        is_number, is_whole, is_cut = (sign in marks[place] for sign in ">|…")
        found.add_column(
            Text(names[place]),
            justify="right" if is_number else "left",
            no_wrap=is_number or is_whole,
            overflow="ellipsis" if is_number else "fold",
        )
        if is_cut:  # its cells, since a column that is never wrapped would not shrink
            cells[place] = [
                Text(str(cell), no_wrap=True, overflow="ellipsis") for cell in cells[place]
            ]
    for number, is_red in enumerate(red or [False] * len(rows)):
        row = (cells[place][number] for place in shown)
        texts = (Text(cell) if isinstance(cell, str) else cell for cell in row)
        found.add_row(*texts, style="red" if is_red else None)
    above = [Text(f"all: {' · '.join(common)}", style="dim")] if common else []
    return Group(*above, found)


def _marked(heading: str) -> tuple[str, str]:
    name = heading.lstrip(">|…=·")
    return heading.removesuffix(name) if name else heading, name


def without_common(lines: Sequence[str]) -> tuple[str, list[str]]:
    """Return the parts that several layouts share, and the remaining parts of each.

    Args:
        lines: one or more, from `Strategy.short`; rows without a layout have `NO_VALUE`.
    """
    parts = [line.split(" · ") for line in lines if line != NO_VALUE]
    common = [part for part in parts[0] if all(part in each for each in parts)] if parts else []
    if len(parts) < 2 or len(common) == len(parts[0]):
        return "", list(lines)
    own = (" · ".join(part for part in line.split(" · ") if part not in common) for line in lines)
    return " · ".join(common), list(own)


def facts(pairs: Iterable[tuple[str, str]], *, title: str | None = None) -> Table:
    """Return a table of two columns: label and value."""
    table = Table(title=title, box=None, pad_edge=False, show_header=False, title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(Text(lowered(name)), Text(value))
    return table


def lowered(label: str) -> str:
    """Return a label as the shell writes it: without a capital, unless it is an abbreviation."""
    return label[:1].lower() + label[1:] if label[1:2].islower() else label


def rows(found: FigureTable, *, title: str | None = None) -> Group:
    """Return a table whose numbers are right-aligned, and the common parts of layouts above."""
    numeric = numeric_columns(found.rows) or [False] * len(found.columns)
    headings = [
        ("·" if name == LAYOUT_COLUMN else ">" if is_number else "") + lowered(name)
        for name, is_number in zip(found.columns, numeric, strict=True)
    ]
    return grid(headings, found.rows, title=title)


def model_line(model: Transformer) -> str:
    """Return what a model's name was resolved to."""
    facts = [
        f"{model.num_layers} layers of {model.hidden_size}",
        f"{model.num_attention_heads} heads",
        f"sequence {model.seq_length}",
        model_size(model),
        meaning_of_size(model),
    ]
    return f"{model.name}: {', '.join(filter(None, facts))}"


def with_unit(value: float | None, unit: str) -> str:
    return figure(value) if value is None else f"{figure(value)} {unit}"


def moment(value: datetime | None) -> str:
    return NO_VALUE if value is None else value.astimezone().strftime("%Y-%m-%d %H:%M")


def rests_on(answer: Prediction | CampaignPlan) -> str:
    """Return the earlier trials that predictions are calibrated on; without, that they are not."""
    if not answer.started_from:
        return f"priors for its kind of machine ({answer.machine.gpu}), not calibrated"
    kind = "simulated trial" if answer.simulated else "trial"
    return ", ".join(
        f"{plural(each.trials, kind)} of campaign {each.campaign_id}"
        for each in answer.started_from
    )
