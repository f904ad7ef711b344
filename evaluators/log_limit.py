"""A log's first and last part kept, and of what is between the lines that tell something.

A program may print without end, and whoever reads its log may do so from any byte on. So the middle
is not cut out but given back to the disk, as a hole: the file keeps its length, and what is printed
meanwhile goes to its end as before. Lines that figures or errors are read from are written again
where the hole begins, with how much is missing.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable
from pathlib import Path

from evaluators.file_hole import give_back
from evaluators.training_log.error_line import SIGNS as ERROR_SIGNS
from evaluators.training_log.lines import LONGEST_LINE, LogLines
from evaluators.training_log.reader import FIGURE_SIGNS
from evaluators.training_log.written import end_of_last_gap

AT_ONCE = 16 << 20
MOST_OF_A_LOOK = 32 << 20
LEAST = 1 << 20
"""Bytes that are worth a hole: a file's holes are rounded to its blocks."""
AFTER_AN_ERROR = 40
"""Lines that are kept after one with an error: its traceback."""
MOST_OF_ERRORS = 64 << 10
Tells = Callable[[bytes], bool]


class LogLimit:
    """Shortens logs while others write them.

    Args:
        kept_bytes: of the beginning and, apart from that, of the end.
        tells: whether a line tells a figure; those of `evaluators.training_log` are known.
    """

    def __init__(self, *, kept_bytes: int, tells: Tells | None = None) -> None:
        self._kept_bytes = kept_bytes
        self._tells = tells
        self._looked_to: dict[Path, int] = {}

    def shorten(self, log: Path) -> bool:
        """Take out what has come between the first and the last part since the last look, as far as
        one look goes; return whether anything was there to look at.

        Raises:
            CannotShorten: not on this file system.
            OSError: it cannot be read or written.
        """
        size = log.stat().st_size
        if size - self._kept_bytes - self._looked_to.get(log, self._kept_bytes) < LEAST:
            return False
        with log.open("r+b", buffering=0) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False  # somebody reads it
            except OSError:  # a file system without locks
                pass
            before = self._looked_to.get(log)
            self._looked_to[log] = self._shorten(file.fileno(), before, size)
        return self._looked_to[log] != before

    def forget(self, log: Path) -> None:
        """Remember nothing of a log that is written no more."""
        self._looked_to.pop(log, None)

    def _shorten(self, file: int, start: int | None, size: int) -> int:
        if start is None:
            start = max(self._kept_bytes, end_of_last_gap(file))
        end = min(size - self._kept_bytes, start + MOST_OF_A_LOOK)
        while end - start >= LEAST:
            start = self._take_out(file, start, min(end, start + AT_ONCE))
        return start

    def _take_out(self, file: int, start: int, end: int) -> int:
        """Take out what tells nothing, in whole lines; return where the rest begins."""
        text = os.pread(file, end - start, start)
        first = _after_line(text, text.find) if start == self._kept_bytes else 0
        last = _after_line(text, text.rfind) or len(text)
        part = text[first:last]
        kept = self._kept(part.lstrip(b"\0"))
        note = f"[autotune left out {(len(part) - len(kept)) / 1e6:.1f} MB here]\n"
        kept += note.encode()
        if len(kept) > len(part) // 2:
            return start + last
        # A crash in between loses lines; the other way round they would be there twice.
        give_back(file, start + first + len(kept), start + last - 1)
        os.pwrite(file, kept, start + first)
        os.pwrite(file, b"\n", start + last - 1)
        return start + last

    def _kept(self, part: bytes) -> bytes:
        """Return the lines that tell a figure, and errors as far as there is room for them."""
        kept: list[bytes] = []
        room, follow = MOST_OF_ERRORS, 0
        tells = self._tells or _tells_figure

        def take(line: bytes) -> bool:
            nonlocal room, follow
            if tells(line):
                kept.append(line)
            elif room > len(line):
                is_error = _ERROR.search(line) is not None
                follow = AFTER_AN_ERROR if is_error else follow - 1
                if follow >= 0:
                    kept.append(line)
                    room -= len(line)
            return follow > 0 and room > 0

        if self._tells is None:
            lines = LogLines((*FIGURE_SIGNS, *ERROR_SIGNS), take)
            lines.feed(part)
        else:
            for line in part.replace(b"\r", b"\n").split(b"\n"):
                take(line[:LONGEST_LINE])
        return b"".join(line + b"\n" for line in kept)


_FIGURES = tuple(sign.encode() for sign in FIGURE_SIGNS)
_ERROR = re.compile(b"|".join(re.escape(sign.encode()) for sign in ERROR_SIGNS))


def _tells_figure(line: bytes) -> bool:
    return any(sign in line for sign in _FIGURES)


def _after_line(text: bytes, find: Callable[[bytes], int]) -> int:
    """Return where a line begins after the end of one that is found; 0 where there is none."""
    return (find(b"\n") if b"\n" in text else find(b"\r")) + 1
