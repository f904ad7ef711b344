"""Building blocks of tables: columns, facts, and metrics worded as on the pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.resolution import transformer_of
from autotune.schemas.calibrations import CalibrationSummary
from autotune.schemas.shapes import MachineShape, ModelShape, StrategyShape
from autotune.wording import figure
from search_spaces.catalog.models import meaning_of_size
from search_spaces.strategy import Strategy
from server.wording import (
    duration,
    iteration_expected,
    mark,
    model_size,
    not_started,
    parameters,
    percent,
    plural,
    probability,
    seconds,
    started_from,
    why_chosen,
)

__all__ = [
    "NO_VALUE",
    "duration",
    "facts",
    "figure",
    "headed",
    "iteration_expected",
    "mark",
    "model_line",
    "moment",
    "not_started",
    "parameters",
    "percent",
    "plural",
    "probability",
    "rests_on",
    "said_once",
    "seconds",
    "started_from",
    "strategy_line",
    "trials_of",
    "why_chosen",
    "with_unit",
    "without_common",
]

NO_VALUE = "–"


def headed(*columns: str, title: str | None = None) -> Table:
    """Return an empty table. A column whose name begins with > has numbers, which are right-aligned
    and never truncated or wrapped, however narrow the terminal."""
    table = Table(title=title, box=None, pad_edge=False, title_justify="left", header_style="bold")
    for column in columns:
        if column.startswith(">"):
            table.add_column(column.removeprefix(">"), justify="right", no_wrap=True)
        else:
            table.add_column(column, overflow="fold")
    return table


def said_once(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Group:
    """Return a table like `headed`. If all of several rows agree in a column whose name begins with
    =, the value is shown once above the table; a column whose name begins with … may be truncated.
    """
    cells = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    constant = {
        index
        for index, column in enumerate(columns)
        if column.startswith("=") and len(rows) > 1 and len(set(cells[index])) == 1
    }
    shown = [index for index in range(len(columns)) if index not in constant]
    table = headed(*(columns[index].lstrip("=…") for index in shown))
    for row in rows:
        table.add_row(
            *(
                Text(row[i], no_wrap=True, overflow="ellipsis")
                if columns[i].startswith("…")
                else Text(row[i])
                for i in shown
            )
        )
    said = [
        f"{columns[index].lstrip('=>')} {cells[index][0]}".strip()
        for index in sorted(constant)
        if cells[index][0] not in ("", NO_VALUE)
    ]
    above = [Text(f"all: {' · '.join(said)}", style="dim")] if said else []
    return Group(*above, table)


def without_common(lines: Sequence[str]) -> tuple[str, list[str]]:
    """Return the parts that all strategies share, and the remaining parts of each.

    Args:
        lines: one or more, from `strategy_line`.
    """
    parts = [line.split(" · ") for line in lines]
    common = [part for part in parts[0] if all(part in each for each in parts)]
    if len(lines) < 2 or len(common) == len(parts[0]):
        return "", list(lines)
    return " · ".join(common), [" · ".join(p for p in each if p not in common) for each in parts]


def facts(pairs: Iterable[tuple[str, str]], *, title: str | None = None) -> Table:
    """Return a table of two columns: label and value."""
    table = Table(title=title, box=None, pad_edge=False, show_header=False, title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in pairs:
        table.add_row(Text(name), Text(value))
    return table


def strategy_line(shape: StrategyShape) -> str:
    """Return `TP 4 · PP 8 · MBS 2 …`, as everywhere else."""
    return Strategy(**vars(shape)).short()


def model_line(shape: ModelShape) -> str:
    """Return what a model's name was resolved to."""
    model = transformer_of(shape)
    told = [
        f"{model.num_layers} layers of {model.hidden_size}",
        f"{model.num_attention_heads} heads",
        f"sequence {model.seq_length}",
        model_size(model),
        meaning_of_size(model),
    ]
    return f"{model.name}: {', '.join(filter(None, told))}"


def with_unit(value: float | None, unit: str) -> str:
    """Return the number with its unit; a dash for None."""
    return figure(value) if value is None else f"{figure(value)} {unit}"


def moment(value: datetime | None) -> str:
    """Return the local time, to the minute."""
    return NO_VALUE if value is None else value.astimezone().strftime("%Y-%m-%d %H:%M")


def rests_on(summary: CalibrationSummary | None, machine: MachineShape) -> str:
    """Return what predictions are calibrated on; for None, that they are not."""
    if summary is None:
        return f"priors for its kind of machine ({machine.gpu}), not calibrated"
    failed = f", {summary.out_of_memory} of them out of memory" if summary.out_of_memory else ""
    software = f" ({summary.software})" if summary.software else ""
    return (
        f"calibration {summary.name}: {trials_of(summary)} of {', '.join(summary.models)} "
        f"on {summary.machine}{failed}{software}"
    )


def trials_of(summary: CalibrationSummary) -> str:
    """Return `24 simulated trials`, `1 trial`."""
    return plural(summary.observations, "simulated trial" if summary.simulated else "trial")


def below(whose: str, shared: str, table: RenderableType) -> Group:
    """Return a table below the dimensions that its strategies share."""
    return Group(*([Text(f"{whose}: {shared}", style="dim")] if shared else []), table)
