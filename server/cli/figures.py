"""Figures in words, as on the pages."""

from __future__ import annotations

from datetime import datetime

from autotune.schemas import CalibrationSummary, MachineShape
from server.dashboard.wording import figure, not_started, parameters, percent, plural, seconds

__all__ = [
    "NO_VALUE",
    "figure",
    "mark",
    "moment",
    "not_started",
    "parameters",
    "percent",
    "plural",
    "probability",
    "rests_on",
    "seconds",
    "tokens",
    "trials_of",
    "with_unit",
]

NO_VALUE = "–"


def with_unit(value: float | None, unit: str) -> str:
    """The figure and its unit; a dash alone for None."""
    return figure(value) if value is None else f"{figure(value)} {unit}"


def moment(value: datetime | None) -> str:
    """Local time, to the minute."""
    return NO_VALUE if value is None else value.astimezone().strftime("%Y-%m-%d %H:%M")


def mark(simulated: bool) -> str:
    """Simulated results say so wherever they are shown."""
    return "simulated" if simulated else "measured"


def tokens(number: float) -> str:
    """`300B`, `1.4T`: in the words of the field, as for parameters."""
    return parameters(number)


def probability(share: float | None) -> str:
    """`97 %`; no certainty is claimed: `> 99 %`, `< 1 %`."""
    if share is None:
        return NO_VALUE
    if share > 0.99:
        return "> 99 %"
    return "< 1 %" if share < 0.01 else f"{100 * share:.0f} %"


def rests_on(summary: CalibrationSummary | None, machine: MachineShape) -> str:
    """What was calibrated on what; for None that nothing was."""
    if summary is None:
        return f"general knowledge of its kind of machine ({machine.gpu}), not calibrated"
    failed = f", {summary.out_of_memory} of them out of memory" if summary.out_of_memory else ""
    software = f" ({summary.software})" if summary.software else ""
    return (
        f"calibration {summary.name}: {trials_of(summary)} of {', '.join(summary.models)} "
        f"on {summary.machine}{failed}{software}"
    )


def trials_of(summary: CalibrationSummary) -> str:
    """`24 simulated trials`, `1 trial`."""
    return plural(summary.observations, "simulated trial" if summary.simulated else "trial")
