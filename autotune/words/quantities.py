"""Quantities in words."""

from __future__ import annotations

from collections.abc import Sequence


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
    return f"{count} node{'' if count == 1 else 's'}"


def listed(words: Sequence[str], *, last: str = "and") -> str:
    head = ", ".join(words[:-1])
    return f"{head} {last} {words[-1]}" if head else "".join(words)
