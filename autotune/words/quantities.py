"""Quantities in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


def token_count(number: float) -> str:
    """Return a training budget as text, with three digits at most: `300 billion`."""
    for scale, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if number >= scale:
            return f"{float(f'{number / scale:.3g}'):g} {name}"
    return f"{number:,.0f}"


def figure(value: float | None) -> str:
    """Return three or more significant digits with thousands separators; a dash for None."""
    if value is None:
        return "–"
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    if size >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if size >= 1 else f"{value:.3g}"


def nodes_of(count: int) -> str:
    return plural(count, "node")


def listed(words: Sequence[str], *, last: str = "and") -> str:
    head = ", ".join(words[:-1])
    return f"{head} {last} {words[-1]}" if head else "".join(words)


def count(value: int) -> str:
    return f"{value:,}"


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def percent(share: float | None) -> str:
    # Adding zero makes a negative one positive.
    return "–" if share is None else f"{round(100 * share, 1) + 0.0:.1f} %"


def signed_percent(share: float | None) -> str:
    return "–" if share is None else f"{round(100 * share, 1) + 0.0:+.1f} %"


def seconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{1000 * value:.3g} ms" if value < 1 else f"{figure(value)} s"


def duration(value: float | None) -> str:
    """Return a long time in its two largest units: `45 s`, `3 min 20 s`, `1 h 5 min`, `2 d 3 h`."""
    if value is None:
        return "–"
    if round(value) < MINUTE:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    units = [(DAY, HOUR, "d", "h"), (HOUR, MINUTE, "h", "min"), (MINUTE, 1.0, "min", "s")]
    large, small, large_name, small_name = next(unit for unit in units if round(value) >= unit[0])
    whole, rest = divmod(round(value), large)
    tail = int(rest // small) if whole < 100 else 0
    return f"{whole:,.0f} {large_name}" + (f" {tail} {small_name}" if tail else "")


def age(moment: datetime | None, *, now: datetime | None = None) -> str:
    """Return how long ago it was, in one unit: `just now`, `5 min ago`, `3 d ago`."""
    if moment is None:
        return "–"
    passed = ((now or datetime.now(UTC)) - moment).total_seconds()
    for length, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if passed >= length:
            return f"{int(passed // length)} {name} ago"
    return "just now"


def parameters(number: float) -> str:
    """Return a model's size: `22.1B`, `345M`, `12K`."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.0f}"


def axis_unit(longest_s: float) -> tuple[str, float]:
    """Return the unit in which an axis up to `longest_s` reads best, and its length in seconds."""
    for length, name in ((3 * DAY, "days"), (3 * HOUR, "hours"), (3 * MINUTE, "minutes")):
        if longest_s >= length:
            return name, length / 3
    return "seconds", 1.0


def probability(share: float | None) -> str:
    """Return `97 %`; no certainty is claimed: `> 99 %`, `< 1 %`."""
    if share is None:
        return "–"
    if share > 0.99:
        return "> 99 %"
    return "< 1 %" if share < 0.01 else f"{100 * share:.0f} %"


def mark(simulated: bool) -> str:
    return "simulated" if simulated else "measured"


def times(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio < 1.2 else f"{ratio:.2g}x"


def gibibytes(value: float | None) -> str:
    return "–" if value is None else f"{figure(value)} GiB"


NUMBER = re.compile(r"[+-]?\d|–$")
"""The start of a numeric cell, also in `figures.js`."""


def numeric_columns(rows: Sequence[Sequence[str]]) -> list[bool]:
    """Return for each column whether its cells are numbers."""
    return [all(NUMBER.match(cell) for cell in column) for column in zip(*rows, strict=True)]
