"""Match an adapter's patterns against a log; of a pattern without a match, find the longest prefix
that matches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from evaluators.adapter.adapter import Adapter, AdapterReader
from evaluators.adapter.stamped_line import LINE, SEARCHED

LINES_LOOKED_AT = 5000


@dataclass(frozen=True, kw_only=True)
class PatternMatch:
    """The first match of a pattern, or its longest matching prefix.

    Attributes:
        line: the matching line; empty if there is none.
        found: the groups.
        beginning: the longest prefix of the pattern that matches, if the whole does not.
    """

    pattern: str
    line: str = ""
    found: Mapping[str, str] | None = None
    beginning: str = ""


def matches(adapter: Adapter, log: Path) -> list[PatternMatch]:
    """Return the match of each pattern of an adapter in a log; raises OSError."""
    lines = list(printed(log))
    return [_match(reader, lines) for reader in adapter.read if reader.log]


def printed(log: Path) -> Iterator[str]:
    """Yield the lines printed by ranks, up to a limit; raises OSError."""
    with log.open(encoding="utf-8", errors="replace") as file:
        stamped = filter(None, (LINE.match(line.rstrip("\n")) for line in file))
        yield from (match[4][:SEARCHED] for match in islice(stamped, LINES_LOOKED_AT))


def _match(reader: AdapterReader, lines: Sequence[str]) -> PatternMatch:
    pattern = re.compile(reader.log)
    for line in lines:
        if match := pattern.search(line):
            return PatternMatch(pattern=reader.log, line=line, found=match.groupdict(""))
    return PatternMatch(pattern=reader.log, beginning=_longest_beginning(reader.log, lines))


def _longest_beginning(pattern: str, lines: Sequence[str]) -> str:
    """Return the longest beginning of a pattern that matches a line; it is cut where the rest is a
    valid pattern."""
    for end in range(len(pattern) - 1, 0, -1):
        try:
            beginning = re.compile(pattern[:end])
        except re.error:
            continue
        if any(match and match[0] for match in map(beginning.search, lines)):
            return pattern[:end]
    return ""
