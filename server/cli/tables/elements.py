"""What tables are made of: columns, facts, and figures in the words of the pages."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from rich.table import Table
from rich.text import Text

from autotune.schemas import CalibrationSummary, MachineShape, StrategyShape
from search_spaces.strategy import Strategy
from server.dashboard.wording import (
    duration,
    figure,
    iteration_expected,
    mark,
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
    "dimension_value",
    "duration",
    "facts",
    "figure",
    "headed",
    "iteration_expected",
    "mark",
    "moment",
    "not_started",
    "parameters",
    "percent",
    "plural",
    "probability",
    "rests_on",
    "seconds",
    "started_from",
    "strategy_line",
    "trials_of",
    "why_chosen",
    "with_unit",
]

NO_VALUE = "–"


def headed(*columns: str, title: str | None = None) -> Table:
    """Return an empty table; a column whose name begins with > is aligned to the right."""
    table = Table(title=title, box=None, pad_edge=False, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left")
    return table


def facts(pairs: Iterable[tuple[str, str]], *, title: str | None = None) -> Table:
    """Return two columns: what it is, and its value."""
    table = Table(title=title, box=None, pad_edge=False, show_header=False, title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, value in pairs:
        table.add_row(Text(name), Text(value))
    return table


def strategy_line(shape: StrategyShape) -> str:
    """Return `TP 4 · PP 8 · MBS 2 …`, as everywhere else."""
    return Strategy(**shape.model_dump()).short()


def dimension_value(value: object) -> str:
    """Return a dimension's value as its option takes it: a switch is on or off."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def with_unit(value: float | None, unit: str) -> str:
    """Return the figure and its unit; a dash alone for None."""
    return figure(value) if value is None else f"{figure(value)} {unit}"


def moment(value: datetime | None) -> str:
    """Return the local time, to the minute."""
    return NO_VALUE if value is None else value.astimezone().strftime("%Y-%m-%d %H:%M")


def rests_on(summary: CalibrationSummary | None, machine: MachineShape) -> str:
    """Return what was calibrated on what; for None that nothing was."""
    if summary is None:
        return f"general knowledge of its kind of machine ({machine.gpu}), not calibrated"
    failed = f", {summary.out_of_memory} of them out of memory" if summary.out_of_memory else ""
    software = f" ({summary.software})" if summary.software else ""
    return (
        f"calibration {summary.name}: {trials_of(summary)} of {', '.join(summary.models)} "
        f"on {summary.machine}{failed}{software}"
    )


def trials_of(summary: CalibrationSummary) -> str:
    """Return `24 simulated trials`, `1 trial`."""
    return plural(summary.observations, "simulated trial" if summary.simulated else "trial")
