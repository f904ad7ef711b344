"""What is written in a log that parts have been taken out of (`evaluators.log_limit`)."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

BLOCK = 1 << 20


@contextmanager
def whole_log(path: Path) -> Iterator[FileIO]:
    """Open a log of which nothing is taken out meanwhile; raises OSError where it cannot be read.

    Where parts are missing it reads as zeros.
    """
    with FileIO(path) as file:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_SH)
        yield file


def written_blocks(file: FileIO, *, start: int = 0) -> Iterator[bytes]:
    """Yield what a log has from a byte on, block by block, without the zeros of missing parts: a
    file system tells where these lie to a block of its own, and zeros fill up the rest of it."""
    size = os.fstat(file.fileno()).st_size
    at = start
    while at < size:
        begin, end = _extent(file.fileno(), at, size)
        after_gap, at = begin > at, begin
        while at < end and (block := os.pread(file.fileno(), min(BLOCK, end - at), at)):
            at += len(block)
            if after_gap:
                block = block.lstrip(b"\0")
                after_gap = False
            yield block.rstrip(b"\0") if at == end < size else block


def end_of_last_gap(descriptor: int) -> int:
    """Return where the last missing part of a log ends; 0 where none is missing."""
    size = os.fstat(descriptor).st_size
    at = last = 0
    while at < size:
        start, end = _extent(descriptor, at, size)
        if at < start < size:
            last = start
        at = end
    return last


def _extent(descriptor: int, at: int, size: int) -> tuple[int, int]:
    """Return the first part that is written, from `at` on; it may begin and end with zeros."""
    try:
        start = os.lseek(descriptor, at, os.SEEK_DATA)
        return start, os.lseek(descriptor, start, os.SEEK_HOLE)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing is written there
            return size, size
        return at, size  # a file system that knows of no missing parts
