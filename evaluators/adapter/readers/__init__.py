"""Readers of the files that trainers write.

As with `rows`, the text of this module is sent to nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from evaluators.adapter.readers.event_file import events
from evaluators.adapter.readers.rows import FoundRow, csv_rows, json_rows

if TYPE_CHECKING:
    from evaluators.adapter.adapter import AdapterReader

__all__ = ["FoundRow", "rows_of"]

_KINDS: Mapping[str, Callable[[Path], Iterator[FoundRow]]] = {
    "json_lines": json_rows,
    "csv": csv_rows,
    "tensorboard": events,
}


def rows_of(reader: AdapterReader, path: Path) -> Iterator[FoundRow]:
    """Yield the rows of a file, by the kind of reader; the rest of a damaged file is skipped.

    Raises:
        OSError: the file cannot be read.
    """
    for kind, read in _KINDS.items():
        if getattr(reader, kind):
            yield from read(path)


def whole_rows_of(reader: AdapterReader, path: Path) -> list[FoundRow]:
    """Return the complete rows of a file that is still being written.

    Raises:
        OSError: the file cannot be read.
    """
    rows = list(rows_of(reader, path))
    # An incomplete number is still a valid number.
    return rows[:-1] if reader.csv and not path.read_bytes().endswith(b"\n") else rows
