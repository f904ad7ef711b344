"""Read the files that trainers write: JSON lines, CSV, and TensorBoard's event files.

Standard library and Python 3.8 only: the text of this module is sent to nodes without this package.
"""

from __future__ import annotations

import csv
import json
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluators.adapter.expression import Value
from evaluators.adapter.figures import value_of

if TYPE_CHECKING:
    from evaluators.adapter.adapter import AdapterReader

DEEPEST = 8


@dataclass(frozen=True)
class FoundRow:
    """One row of a file: values by names that expressions can use.

    Attributes:
        at_s: when it was written, if the file says so.
    """

    values: Mapping[str, Value]
    at_s: float | None = None


def name_of(key: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", key).strip("_")


def json_rows(path: Path) -> Iterator[FoundRow]:
    """Yield the objects of a JSON lines file; nested keys are joined to the outer ones."""
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(row, dict):
                yield FoundRow(values=dict(_flat(row, "", DEEPEST)))


def csv_rows(path: Path) -> Iterator[FoundRow]:
    """Yield the rows of a CSV file whose first line has the column names."""
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        try:
            for row in csv.DictReader(file):
                cells = {key: cell for key, cell in row.items() if key and isinstance(cell, str)}
                yield FoundRow(values={name_of(key): value_of(cell) for key, cell in cells.items()})
        except csv.Error:
            return


def _flat(row: Mapping[str, Any], before: str, depth: int) -> Iterator[tuple[str, Value]]:
    for key, value in row.items():
        name = name_of(f"{before}_{key}")
        if isinstance(value, dict) and depth:
            yield from _flat(value, name, depth - 1)
        elif isinstance(value, float) and not math.isfinite(value):
            yield name, str(value)
        elif isinstance(value, str):
            yield name, value_of(value)
        elif isinstance(value, (int, float)):
            yield name, value


# An event file is a sequence of records: the length of the data (8 bytes), its checksum, the data,
# and its checksum (4 bytes each, little-endian). Checksums are masked CRC-32C, rotated and shifted
# (`tensorflow/core/lib/hash/crc32c.h`). The data is an `Event` of `event.proto`: wall time (field
# 1), step (2) and summary (5), of whose values (1) a tag (1) with a simple value (2) or a tensor
# (8) with a float or a double (5 or 6, or its bytes in 4) is a scalar.
LONGEST_RECORD = 1 << 20
_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def _table() -> tuple[int, ...]:
    rows = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        rows.append(value)
    return tuple(rows)


_TABLE = _table()


def masked_crc32c(data: bytes) -> int:
    """Return the checksum of data."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def events(path: Path) -> Iterator[FoundRow]:
    """Yield each event with scalars: tag -> value, and `step`."""
    with path.open("rb") as file:
        while (head := file.read(12)) and len(head) == 12:
            (length,) = struct.unpack("<Q", head[:8])
            if struct.unpack("<I", head[8:])[0] != masked_crc32c(head[:8]):
                return
            if length > LONGEST_RECORD:  # an image, or a graph
                file.seek(length + 4, 1)
                continue
            data, tail = file.read(length), file.read(4)
            if len(tail) < 4 or struct.unpack("<I", tail)[0] != masked_crc32c(data):
                return
            try:
                row = _event(data)
            except (ValueError, struct.error, IndexError):
                return
            if len(row.values) > 1:
                yield row


def _event(data: bytes) -> FoundRow:
    values: dict[str, Value] = {"step": 0}
    at_s = None
    for field, content in _fields(data):
        if field == 1 and isinstance(content, bytes):
            (at_s,) = struct.unpack("<d", content)
        elif field == 2 and isinstance(content, int):
            values["step"] = content
        elif field == 5 and isinstance(content, bytes):
            values |= _scalars(content)
    return FoundRow(values=values, at_s=at_s)


def _scalars(summary: bytes) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for field, content in _fields(summary):
        if field == 1 and isinstance(content, bytes):
            tag, number = _summary_value(content)
            if tag and number is not None:
                found[name_of(tag)] = number if math.isfinite(number) else str(number)
    return found


def _summary_value(data: bytes) -> tuple[str, float | None]:
    tag, number = "", None
    for field, content in _fields(data):
        if field == 1 and isinstance(content, bytes):
            tag = content.decode("utf-8", "replace")
        elif field == 2 and isinstance(content, bytes):
            (number,) = struct.unpack("<f", content)
        elif field == 8 and isinstance(content, bytes):
            number = _tensor(content)
    return tag, number


def _tensor(data: bytes) -> float | None:
    for field, content in _fields(data):
        if field in {4, 5, 6} and isinstance(content, bytes) and len(content) in {4, 8}:
            form = "<f" if len(content) == 4 else "<d"
            number: float = struct.unpack(form, content)[0]
            return number
    return None


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message: numbers, or bytes of fixed or variable length.

    Raises:
        ValueError, IndexError: the data is not a message.
    """
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            number, at = _varint(data, at)
            yield key >> 3, number
            continue
        if kind == _BYTES:
            length, at = _varint(data, at)
        elif kind in {_FIXED64, _FIXED32}:
            length = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"a field of kind {kind}")
        if at + length > len(data):
            raise ValueError("a field is cut")
        yield key >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
        if shift > 63:
            raise ValueError("a number of over 64 bits")


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
