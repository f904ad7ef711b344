"""Cuts a stream into lines, and finds those that are worth a look without looking at each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

# A longer line is no line that any program here writes.
LONGEST_LINE = 64 << 10
_SLICE = 1 << 20


class Lines:
    """Hands on the whole lines that hold one of `signs`.

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
        for start in range(0, len(block), _SLICE):
            self._feed(block[start : start + _SLICE].replace(b"\r", b"\n"))

    def finish(self) -> tuple[bool, bytes]:
        """Whether the last line was cut, and what there is of it if it is not too long."""
        return self._overlong or bool(self._rest), self._rest

    def _feed(self, block: bytes) -> None:
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
        self._keep(block[end:])

    def _keep(self, rest: bytes) -> None:
        """The beginning of a line whose end is still to come."""
        self._overlong = self._overlong or len(self._rest) + len(rest) > LONGEST_LINE
        self._rest = b"" if self._overlong else self._rest + rest

    def _read(self, lines: bytes) -> None:
        """Whole lines."""
        at = 0
        for start in [*self._starts(lines), len(lines)]:
            while self._wants_all and at < start:
                at = self._hand_on(lines, at)
            if at <= start < len(lines):
                at = self._hand_on(lines, start)

    def _hand_on(self, lines: bytes, start: int) -> int:
        """The line that begins at `start`; where the next one begins."""
        end = lines.find(b"\n", start)
        if end - start <= LONGEST_LINE:
            self._wants_all = self._take(lines[start:end])
        return end + 1

    def _starts(self, lines: bytes) -> list[int]:
        """Where the lines begin that hold a sign, in order."""
        starts = set()
        for sign in self._signs:
            at = lines.find(sign)
            while at >= 0:
                starts.add(lines.rfind(b"\n", 0, at) + 1)
                at = lines.find(sign, lines.find(b"\n", at))
        return sorted(starts)
