"""Calibrations as text for people."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.schemas import CalibrationDetail, CalibrationSummary, ConstantShape
from server.cli.figures import NO_VALUE, mark, moment, trials_of
from server.cli.tables import facts, headed

SHORT_TIMES = ((1e-3, "µs", 1e6), (1.0, "ms", 1e3))
"""Below so many seconds: the unit that reads best, and how many of it are a second."""


def calibrations(items: Sequence[CalibrationSummary]) -> Table:
    table = headed("name", "machine", ">trials", ">OOM", "models", "", "created", "software")
    for column in table.columns:
        column.no_wrap = column.header in {"name", "machine", "created"}
    for item in items:
        table.add_row(
            Text(item.name),
            Text(item.machine),
            str(item.observations),
            str(item.out_of_memory),
            Text(", ".join(item.models)),
            mark(item.simulated),
            moment(item.created_at),
            Text(item.software or NO_VALUE),
        )
    return table


def calibration(item: CalibrationDetail) -> RenderableType:
    """What it rests on, and its constants in the order in which they came."""
    return Group(
        facts(
            [
                ("calibration", item.name),
                ("machine", item.machine),
                ("software", item.software or NO_VALUE),
                ("models", ", ".join(item.models)),
                (
                    "trials",
                    f"{trials_of(item)}: {item.timed:,} timed, "
                    f"{item.out_of_memory:,} out of memory",
                ),
                ("created", moment(item.created_at)),
            ]
        ),
        "",
        Text("± is a factor: 80 % lies between a value divided by it and the value times it"),
        constants(item.constants),
    )


def constants(items: Iterable[ConstantShape]) -> Table:
    """Each before and after."""
    table = headed("constant", "unit", ">generally known", ">±", ">calibrated", ">±")
    for item in items:
        unit, scale = readable(item)
        table.add_row(
            item.name,
            unit,
            f"{item.prior * scale:.3g}",
            factor(item.prior_spread),
            f"{item.value * scale:.3g}",
            factor(item.spread),
        )
    return table


def readable(item: ConstantShape) -> tuple[str, float]:
    """The unit in which a constant reads best, and what its value is to be multiplied by."""
    if item.unit == "s":
        found = ((unit, scale) for below, unit, scale in SHORT_TIMES if item.prior < below)
        return next(found, (item.unit, 1.0))
    return item.unit, 1.0


def factor(spread: float) -> str:
    """`× 1.14`, from the standard deviation of a logarithm."""
    # Here, and not above: no other command waits for all that a calibration imports.
    from autotune.calibration.calibration import Z

    return f"× {math.exp(Z * spread):.2f}"
