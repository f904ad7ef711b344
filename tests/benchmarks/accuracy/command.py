"""What commands that judge by tables have in common: arguments, progress, tables."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.benchmarks.accuracy.tables import TableError

WIDTH = 150
"""Columns of the tables where they go to a file."""


def console(file: TextIO) -> Console:
    return Console(file=file, width=None if file.isatty() else WIDTH)


def at_least_1(text: str) -> int:
    """The type of an argument."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


def check_writable(path: Path | None) -> None:
    """Before minutes of work, not after them."""
    if path is None:
        return
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise TableError(f"{path}: cannot be written")


def bars() -> Progress:
    """Goes to standard error, so that the tables can go to a file."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=console(sys.stderr))


def table(
    title: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    caption: str | None = None,
) -> Table:
    """A table whose first column is words and all others figures."""
    made = Table(title=title, caption=caption)
    for place, head in enumerate(heads):
        made.add_column(head, justify="right" if place else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made
