"""Small HTML tables for notebooks, in the colours of the surrounding page."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

_CELL = "text-align:left;padding:.15em .8em .15em 0;border:0;background:none"


def facts(title: str, pairs: Iterable[tuple[str, str]]) -> str:
    """Return a title and two columns; all text is escaped."""
    rows = "".join(
        f'<tr style="background:none"><th scope="row" style="{_CELL};opacity:.7;'
        f'font-weight:normal">{escape(name)}</th><td style="{_CELL}">{escape(value)}</td></tr>'
        for name, value in pairs
    )
    return (
        '<div style="color:inherit;border-left:3px solid currentColor;padding-left:.8em">'
        f'<strong>{escape(title)}</strong><table style="border:0">{rows}</table></div>'
    )
