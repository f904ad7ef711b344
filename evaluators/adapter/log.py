"""The log of all ranks and starts, with the prefixes that `rank_process` writes."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evaluators.adapter.adapter import AdapterReader
from evaluators.adapter.expression import Names
from evaluators.adapter.figures import LINE, StartFigures, StartPart, found_in
from evaluators.adapter.names import OF_LAYERS, OF_MACHINE, OF_MODEL, OF_STRATEGY
from evaluators.adapter.readers import rows_of, whole_rows_of
from evaluators.training_log import Cause, CauseKind, Power
from evaluators.training_log.cause import RootCause, plain
from evaluators.training_log.error_line import SIGNS
from evaluators.training_log.lines import text_of
from evaluators.training_log.power import POWER_SIGN, PowerLines

CODE = re.compile(r"ended with exit code \d+$")
LONGEST_LINE = 64 << 10
MOST_OF_A_LINE = 200


@dataclass(kw_only=True)
class StartLog:
    """One start in the log."""

    figures: StartFigures
    power: PowerLines = field(default_factory=PowerLines)


class AdapterLog:
    """Parses the log line by line.

    Args:
        starts: the parts of each start, in order.
    """

    def __init__(
        self, readers: Sequence[AdapterReader], starts: Sequence[Sequence[StartPart]]
    ) -> None:
        self._readers = readers
        self._patterns = [(n, re.compile(r.log)) for n, r in enumerate(readers) if r.log]
        self.starts = [
            StartLog(figures=StartFigures(readers, parts, echoed=_echoed(parts[0].names)))
            for parts in starts
        ]
        self._now = 0
        self._cause = RootCause()
        self._last_lines: dict[int, str] = {}
        self._first_to_end: Cause | None = None

    @property
    def cause(self) -> Cause | None:
        """The root cause of a failure: the error that explains the others or, without one, the last
        words of the first rank to end."""
        cause = self._cause.cause()
        if self._first_to_end and (cause is None or cause.kind is CauseKind.CONSEQUENCE):
            return self._first_to_end
        return cause

    @property
    def power(self) -> tuple[Power, ...]:
        return tuple(start.power.power() for start in self.starts)

    def read(self, path: Path) -> None:
        """Process a whole file; raises OSError."""
        with path.open("rb") as lines:
            while line := lines.readline(LONGEST_LINE):
                if text := line.strip(b"\r\n"):
                    self.take(text_of(text))

    def take(self, line: str) -> None:
        """Process one line, of a rank or of anything else that writes to the log."""
        stamped = LINE.match(line)
        if stamped is None:
            self._take_other(line)
            return
        start, rank, at_s, text = stamped.groups()
        if not 1 <= int(start) <= len(self.starts):
            return
        self._now = int(start) - 1
        figures = self.starts[self._now].figures
        for place, pattern in self._patterns:
            found = found_in(text, pattern)
            if found is not None and figures.take(place, found, rank=int(rank), at_s=float(at_s)):
                self._cause.iterated()
        self._look_for_errors(f"[rank{rank}]: {text}")
        self._note_end(int(rank), text)

    def read_files(self, folder: Path, *, ended: Collection[int] = ()) -> None:
        """Process the files that ranks collected for the readers.

        Args:
            ended: numbers of the starts that were ended while writing, whose last row may be
                incomplete.
        """
        file_readers = [(n, reader) for n, reader in enumerate(self._readers) if reader.file]
        for number, start in enumerate(self.starts, start=1):
            for order, (place, reader) in enumerate(file_readers):
                for path in sorted(folder.glob(f"found-{number}-{order}-*")):
                    rows = whole_rows_of if number in ended else rows_of
                    for row in rows(reader, path):
                        start.figures.take(place, row.values, rank=0, at_s=row.at_s)

    def _take_other(self, line: str) -> None:
        if POWER_SIGN in line and self.starts:
            start = self.starts[self._now]
            start.power.read(line, after=len(start.figures.iterations))
        else:
            self._look_for_errors(line)

    def _look_for_errors(self, line: str) -> None:
        if self._cause.attentive or any(sign in line for sign in SIGNS):
            self._cause.read(line[:2000])

    def _note_end(self, rank: int, text: str) -> None:
        if self._first_to_end is None and CODE.match(text):
            last = self._last_lines.get(rank, "nothing")[:MOST_OF_A_LINE]
            error = f"a rank {text}; it last printed: {plain(last)}"
            self._first_to_end = Cause(error=error, kind=CauseKind.ERROR, rank=rank)
        elif any(map(str.isalnum, text)):
            self._last_lines[rank] = text.strip()


def _echoed(names: Names) -> frozenset[str]:
    return frozenset({*names, *OF_STRATEGY}).difference(OF_MODEL, OF_LAYERS, OF_MACHINE)


def file_patterns(readers: Sequence[AdapterReader]) -> list[str]:
    """Return the patterns of files to collect from a start, in the readers' order."""
    return [
        f"{reader.tensorboard.strip('/')}/**/*tfevents*" if reader.tensorboard else reader.file
        for reader in readers
        if reader.file
    ]
