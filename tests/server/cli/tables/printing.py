"""What a table prints."""

from __future__ import annotations

from rich.console import Console, RenderableType


def printed(table: RenderableType, *, width: int = 160) -> str:
    console = Console(width=width)
    with console.capture() as text:
        console.print(table)
    return text.get()
