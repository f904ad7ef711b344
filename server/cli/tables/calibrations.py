"""Calibrations as text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.schemas.calibrations import CalibrationDetail, CalibrationSummary, ConstantShape
from server.cli.tables.elements import NO_VALUE, facts, headed, mark, moment, trials_of

SHORT_TIMES = ((1e-3, "µs", 1e6), (1.0, "ms", 1e3))
"""Upper bound in seconds -> unit, and number of units per second."""


def calibrations(items: Sequence[CalibrationSummary]) -> Table:
    """Return one row per calibration."""
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
    """Return its trials, and its constants in the given order."""
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
        _constants(item.constants),
    )


def _constants(items: Iterable[ConstantShape]) -> Table:
    """Return one row per constant, before and after calibration."""
    # Imported late: other commands do not need everything that a calibration imports.
    from autotune.calibration.calibration import Z

    table = headed("constant", "unit", ">generally known", ">±", ">calibrated", ">±")
    for item in items:
        unit, scale = item.unit, 1.0
        if unit == "s":
            shown_as = ((u, per_s) for below, u, per_s in SHORT_TIMES if item.prior < below)
            unit, scale = next(shown_as, (unit, scale))
        table.add_row(
            item.name,
            unit,
            f"{item.prior * scale:.3g}",
            f"× {math.exp(Z * item.prior_spread):.2f}",
            f"{item.value * scale:.3g}",
            f"× {math.exp(Z * item.spread):.2f}",
        )
    return table
