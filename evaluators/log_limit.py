"""Limit the size of a log: keep its beginning and end, and the informative lines in between.

A program may print without end, and readers may continue from any offset. The middle is therefore
not cut out but replaced by a hole: the file keeps its length, and output is still appended. Lines
with measurements or errors are rewritten at the start of the hole, with the number of bytes
removed.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from evaluators.training_log.error_line import SIGNS as ERROR_SIGNS
from evaluators.training_log.lines import LONGEST_LINE, LogLines, end_of_last_gap
from evaluators.training_log.reader import FIGURE_SIGNS

KEPT_BYTES = 4 << 20
"""Bytes kept before the reader's position: a reader that lost its last part asks again, and other
readers use the file, too."""
FREED_AT_ONCE = 1 << 20
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # from linux/falloc.h
_UNSUPPORTED = {errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


class CannotShorten(Exception):
    """The file system cannot punch holes."""


def punch_hole(file: int, start: int, end: int) -> None:
    """Replace a part of a file by a hole, which reads as zeros and takes no space.

    Raises:
        CannotShorten: the file system does not support it.
        OSError: the file cannot be written.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = getattr(libc, "fallocate", None)
    if fallocate is None:
        raise CannotShorten("this system has no fallocate")
    fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    if fallocate(file, _KEEP_SIZE | _PUNCH_HOLE, start, end - start) == 0:
        return
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        raise CannotShorten(os.strerror(number))
    raise OSError(number, os.strerror(number))


def free_consumed(file: int, consumed: int, *, freed: int) -> int:
    """Free the part of a file that a reader has consumed, except the last KEPT_BYTES.

    Args:
        consumed: number of bytes read so far.
        freed: number of bytes freed before.

    Returns:
        The number of bytes freed now; unsupported file systems count as freed.
    """
    end = consumed - KEPT_BYTES
    if end - freed < FREED_AT_ONCE:
        return freed
    with suppress(CannotShorten, OSError):
        punch_hole(file, freed, end)
    return end


AT_ONCE = 16 << 20
MOST_OF_A_LOOK = 32 << 20
LEAST = 1 << 20
"""Minimum size of a hole; holes are rounded to blocks."""
AFTER_AN_ERROR = 40
"""Lines kept after one with an error, for its traceback."""
MOST_OF_ERRORS = 64 << 10
LinePredicate = Callable[[bytes], bool]


class LogLimit:
    """Shortens logs while others write them.

    Args:
        kept_bytes: bytes to keep at the beginning, and at the end.
        is_informative: whether a line has a measurement; by default, by the signs of
            `evaluators.training_log`.
    """

    def __init__(self, *, kept_bytes: int, is_informative: LinePredicate | None = None) -> None:
        self._kept_bytes = kept_bytes
        self._is_informative = is_informative
        self._looked_to: dict[Path, int] = {}

    def shorten(self, log: Path) -> bool:
        """Remove what has been written between the kept parts since the last call, up to a limit
        per call; return whether there was anything to examine.

        Raises:
            CannotShorten: the file system does not support it.
            OSError: the file cannot be read or written.
        """
        size = log.stat().st_size
        if size - self._kept_bytes - self._looked_to.get(log, self._kept_bytes) < LEAST:
            return False
        with log.open("r+b", buffering=0) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False  # another process reads it
            except OSError:  # a file system without locks
                pass
            before = self._looked_to.get(log)
            self._looked_to[log] = self._shorten(file.fileno(), before, size)
        return self._looked_to[log] != before

    def forget(self, log: Path) -> None:
        """Forget a log that is no longer written."""
        self._looked_to.pop(log, None)

    def _shorten(self, file: int, start: int | None, size: int) -> int:
        if start is None:
            start = max(self._kept_bytes, end_of_last_gap(file))
        end = min(size - self._kept_bytes, start + MOST_OF_A_LOOK)
        while end - start >= LEAST:
            start = self._take_out(file, start, min(end, start + AT_ONCE))
        return start

    def _take_out(self, file: int, start: int, end: int) -> int:
        """Remove uninformative lines; return the offset where the rest begins."""
        text = os.pread(file, end - start, start)
        first = _after_line(text, text.find) if start == self._kept_bytes else 0
        last = _after_line(text, text.rfind) or len(text)
        part = text[first:last]
        kept = self._kept(part.lstrip(b"\0"))
        note = f"[autotune left out {(len(part) - len(kept)) / 1e6:.1f} MB here]\n"
        kept += note.encode()
        if len(kept) > len(part) // 2:
            return start + last
        # A crash in between loses lines; the other order would duplicate them.
        punch_hole(file, start + first + len(kept), start + last - 1)
        os.pwrite(file, kept, start + first)
        os.pwrite(file, b"\n", start + last - 1)
        return start + last

    def _kept(self, part: bytes) -> bytes:
        """Return the lines with measurements, and errors as far as space allows."""
        kept: list[bytes] = []
        room, follow = MOST_OF_ERRORS, 0
        is_informative = self._is_informative or _has_measurement

        def take(line: bytes) -> bool:
            nonlocal room, follow
            if is_informative(line):
                kept.append(line)
            elif room > len(line):
                is_error = _ERROR.search(line) is not None
                follow = AFTER_AN_ERROR if is_error else follow - 1
                if follow >= 0:
                    kept.append(line)
                    room -= len(line)
            return follow > 0 and room > 0

        if self._is_informative is None:
            lines = LogLines((*FIGURE_SIGNS, *ERROR_SIGNS), take)
            lines.feed(part)
        else:
            for line in part.replace(b"\r", b"\n").split(b"\n"):
                take(line[:LONGEST_LINE])
        return b"".join(line + b"\n" for line in kept)


_FIGURES = tuple(sign.encode() for sign in FIGURE_SIGNS)
_ERROR = re.compile(b"|".join(re.escape(sign.encode()) for sign in ERROR_SIGNS))


def _has_measurement(line: bytes) -> bool:
    return any(sign in line for sign in _FIGURES)


def _after_line(text: bytes, find: Callable[[bytes], int]) -> int:
    """Return the offset after the first line end; 0 if there is none."""
    return (find(b"\n") if b"\n" in text else find(b"\r")) + 1
