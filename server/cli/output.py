"""Output: results to stdout, everything else to stderr."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 200
"""Width of a table that is not printed to a terminal, so that it is not wrapped."""

Json = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON document instead of text.", show_default=False),
]


def out() -> Console:
    """Return the console for results.

    It is created on each call, because a test or a pipe may have replaced sys.stdout.
    """
    from rich.console import Console

    return Console(width=_width(sys.stdout.isatty()), highlight=False, soft_wrap=False)


def err() -> Console:
    from rich.console import Console

    return Console(stderr=True, width=_width(sys.stderr.isatty()), highlight=False)


def _width(is_terminal: bool) -> int | None:
    return None if is_terminal or os.environ.get("COLUMNS") else PIPE_WIDTH


def note(text: str) -> None:
    err().print(text, markup=False, soft_wrap=True)


def text(content: str) -> None:
    sys.stdout.write(content if content.endswith("\n") else content + "\n")


def document(value: Any) -> None:
    text(json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False))


def plain(value: Any) -> Any:
    """Return models, also nested in lists and dictionaries, as JSON types."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value)
