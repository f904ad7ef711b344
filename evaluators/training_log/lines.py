"""The lines of a stream: those that are worth a look, and who wrote each of them."""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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


# A longer line is no line that any program here writes.
LONGEST_LINE = 64 << 10
_SLICE = 1 << 20


class LogLines:
    """Cuts a stream into lines, and hands on those that hold one of `signs`.

    A line ends with a newline or a carriage return, as those of progress bars do. One of more
    than LONGEST_LINE bytes is left out.

    Attributes:
        take: is given each such line; while it returns True, all lines are handed on.
    """

    def __init__(self, signs: Sequence[str], take: Callable[[bytes], bool]) -> None:
        self._signs = tuple(sign.encode() for sign in signs)
        self._take = take
        self._wants_all = False
        self._rest = b""
        self._overlong = False

    def feed(self, block: bytes) -> None:
        """Take the next bytes of the stream."""
        for start in range(0, len(block), _SLICE):
            self._feed(block[start : start + _SLICE].replace(b"\r", b"\n"))

    def finish(self) -> tuple[bool, bytes]:
        """Return whether the last line was cut, and what there is of it if it is not too long."""
        return self._overlong or bool(self._rest), self._rest

    def _feed(self, block: bytes) -> None:
        """Take a block in which every line ends with a newline."""
        end = block.rfind(b"\n") + 1
        if end:
            first = 0
            if self._overlong:
                first = block.find(b"\n") + 1
            elif self._rest:
                first = block.find(b"\n") + 1
                self._read(self._rest + block[:first])
            self._rest, self._overlong = b"", False
            self._read(block[first:end])
        # The beginning of a line whose end is still to come.
        rest = block[end:]
        self._overlong = self._overlong or len(self._rest) + len(rest) > LONGEST_LINE
        self._rest = b"" if self._overlong else self._rest + rest

    def _read(self, lines: bytes) -> None:
        """Hand on what is wanted of whole lines."""
        at = 0
        for start in [*self._starts(lines), len(lines)]:
            while self._wants_all and at < start:
                at = self._hand_on(lines, at)
            if at <= start < len(lines):
                at = self._hand_on(lines, start)

    def _hand_on(self, lines: bytes, start: int) -> int:
        """Hand on the line that begins at `start`; return where the next one begins."""
        end = lines.find(b"\n", start)
        if end - start <= LONGEST_LINE:
            self._wants_all = self._take(lines[start:end])
        return end + 1

    def _starts(self, lines: bytes) -> list[int]:
        """Return where the lines begin that hold a sign, in order."""
        starts = set()
        for sign in self._signs:
            at = lines.find(sign)
            while at >= 0:
                starts.add(lines.rfind(b"\n", 0, at) + 1)
                at = lines.find(sign, lines.find(b"\n", at))
        return sorted(starts)


# `srun --label`: " 3: ". torch: "[rank3]: ". The bundled trainer: "[rank 3] ". torchrun's
# "[default7]:" counts within a node, so it tells no rank.
_LABEL = re.compile(
    r"(?:\s{0,8}(?P<task>[0-9]{1,7}): |\[default[0-9]{1,7}\]: ?"
    r"|\[[Rr]ank ?(?P<rank>[0-9]{1,7})\](?:: ?| |$))*"
)
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")


@dataclass(frozen=True, kw_only=True)
class LabelledLine:
    """A line without its prefix.

    Attributes:
        label: the prefix itself: lines of one writer share it.
        text: the rest, its indentation kept.
    """

    label: str
    rank: int | None
    text: str


def labelled(line: str) -> LabelledLine:
    """Return the line with its prefix taken off; a line without one has an empty label."""
    prefix = _LABEL.match(line)
    if prefix is None or not prefix.end():
        return LabelledLine(label="", rank=None, text=line)
    rank = prefix["rank"] or prefix["task"]
    return LabelledLine(
        label=prefix[0].strip(), rank=int(rank) if rank else None, text=line[prefix.end() :]
    )


def text_of(line: bytes) -> str:
    """Return a line as it would be shown, without colours."""
    text = line.decode("utf-8", "replace")
    return _ANSI.sub("", text) if "\x1b" in text else text
