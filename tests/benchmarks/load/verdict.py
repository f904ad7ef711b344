"""Whether a bar holds."""

from __future__ import annotations


def verdict(value: float, most: float | None, unit: str) -> str:
    """Return the bar and whether it holds; empty where there is none."""
    if most is None:
        return ""
    return f"at most {most:g} {unit}".rstrip() + ("" if value <= most else ": OVER")
