"""Read TensorBoard event files without TensorBoard.

A file is a sequence of records: the length of the data (8 bytes), its checksum, the data, and its
checksum (4 bytes each, little-endian). Checksums are masked CRC-32C, rotated and shifted
(`tensorflow/core/lib/hash/crc32c.h`). The data is an `Event` of `event.proto`: wall time (field 1),
step (2) and summary (5), of whose values (1) a tag (1) with a simple value (2) or a tensor (8) with
a float or a double (5 or 6, or its bytes in 4) is a scalar.

As with `rows`, the text of this module is sent to nodes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from pathlib import Path

from evaluators.adapter.expression import Value
from evaluators.adapter.readers.rows import FoundRow, name_of

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
    """Return the value of a tensor with one float or double; None for any other tensor."""
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
