"""Figures in words, as on the pages."""

from __future__ import annotations

from datetime import datetime

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
    "seconds",
    "tokens",
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
