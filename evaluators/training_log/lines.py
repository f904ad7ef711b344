"""Cut a log into the lines of interest and their writers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# Longer lines are not log lines.
LONGEST_LINE = 64 << 10
_SLICE = 1 << 20


class LogLines:
    """Cut a stream into lines, and pass those with one of `signs` to `take`.

    A line ends with a newline or, like those of progress bars, a carriage return. Lines of more
    than LONGEST_LINE bytes are skipped.

    Args:
        take: called with each such line; while it returns True, all lines are passed on.
        wants_all: whether all lines are passed on at the beginning.
    """

    def __init__(
        self, signs: Sequence[str], take: Callable[[bytes], bool], *, wants_all: bool = False
    ) -> None:
        self._signs = tuple(sign.encode() for sign in signs)
        self._take = take
        self._wants_all = wants_all
        self._rest = b""
        self._overlong = False

    def feed(self, block: bytes) -> None:
        for start in range(0, len(block), _SLICE):
            self._feed(block[start : start + _SLICE].replace(b"\r", b"\n"))

    def finish(self) -> bytes:
        """Return what follows the last newline."""
        return self._rest

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
        # An incomplete last line.
        rest = block[end:]
        self._overlong = self._overlong or len(self._rest) + len(rest) > LONGEST_LINE
        self._rest = b"" if self._overlong else self._rest + rest

    def _read(self, lines: bytes) -> None:
        at = 0
        for start in [*self._starts(lines), len(lines)]:
            while self._wants_all and at < start:
                at = self._hand_on(lines, at)
            if at <= start < len(lines):
                at = self._hand_on(lines, start)

    def _hand_on(self, lines: bytes, start: int) -> int:
        end = lines.find(b"\n", start)
        if end - start <= LONGEST_LINE:
            self._wants_all = self._take(lines[start:end])
        return end + 1

    def _starts(self, lines: bytes) -> list[int]:
        starts = set()
        for sign in self._signs:
            at = lines.find(sign)
            while at >= 0:
                starts.add(lines.rfind(b"\n", 0, at) + 1)
                at = lines.find(sign, lines.find(b"\n", at))
        return sorted(starts)


# `srun --label`: " 3: ". torch: "[rank3]: ". The bundled trainer: "[rank 3] ". torchrun's
# "[default7]:" counts within a node, so it is no rank.
_LABEL = re.compile(
    r"(?:\s{0,8}(?P<task>[0-9]{1,7}): |\[default[0-9]{1,7}\]: ?"
    r"|\[[Rr]ank ?(?P<rank>[0-9]{1,7})\](?:: ?| |$))*"
)
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")


@dataclass(frozen=True, kw_only=True)
class LabelledLine:
    """A line, split into prefix and text.

    Attributes:
        label: the prefix, common to all lines of one writer.
        text: the rest, with its indentation.
    """

    label: str
    rank: int | None
    text: str


def labelled(line: str) -> LabelledLine:
    """Split a line into its prefix and the rest; the label is empty without a prefix."""
    prefix = _LABEL.match(line)
    if prefix is None or not prefix.end():
        return LabelledLine(label="", rank=None, text=line)
    rank = prefix["rank"] or prefix["task"]
    return LabelledLine(
        label=prefix[0].strip(), rank=int(rank) if rank else None, text=line[prefix.end() :]
    )


def text_of(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    return _ANSI.sub("", text) if "\x1b" in text else text
