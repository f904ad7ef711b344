"""Watch the log of one start of an adapter's trainer, like `run_watch`.

Values are found by the adapter's own readers. As with `run_watch`, this module's text is sent to
nodes without this package.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from evaluators.adapter.figures import LINE, StartFigures, StartPart, found_in
from evaluators.adapter.rank_process import collect
from evaluators.adapter.readers import whole_rows_of
from evaluators.program.run_watch import RunWatch, main
from evaluators.stopping_rule import Verdict

LARGEST_FILE = 4 << 20
"""Maximum bytes of a file that is reread whenever it grows."""


class StartWatch(RunWatch):
    """The state of one start according to its log.

    Args:
        plan: that of `run_watch`, plus the start's number and folder, the file patterns of its
            readers by position, its parts (one per segment), and the adapter's readers. If
            `ends_early` is false, or a required memory reading is missing, sufficient measurements
            do not end the start.
    """

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__(plan)
        readers: Any = [SimpleNamespace(**reader) for reader in plan["readers"]]
        parts = [StartPart(**part) for part in plan["parts"]]
        self._figures = StartFigures(readers, parts, echoed=())
        self._patterns = [(n, re.compile(r.log)) for n, r in enumerate(readers) if r.log]
        self._clock: int | None = None
        self._sizes: dict[Path, int] = {}
        self._taken: dict[Path, int] = {}
        self._began_s: float | None = None
        self._waits_for_memory = plan["tells_memory"]

    def take(self, line: str, *, elapsed_s: float) -> tuple[Verdict, str]:
        """Process a line of the log; return whether the start continues, and why not."""
        stamped = LINE.match(line.strip("\0\r"))
        if stamped is None or int(stamped[1]) != self._plan["start"]:
            return Verdict.GO_ON, ""
        rank, at_s = int(stamped[2]), float(stamped[3])
        news = False
        for place, pattern in self._patterns:
            found = found_in(stamped[4], pattern)
            if found is not None:
                timed = self._figures.take(place, found, rank=rank, at_s=at_s)
                news |= timed and self._is_clock(rank, at_s)
        news |= self._has_memory(rank)
        return self._judged(elapsed_s) if news else (Verdict.GO_ON, "")

    def look(self, *, elapsed_s: float) -> tuple[Verdict, str]:
        """Process new contents of files; return the same as `take`."""
        if self._began_s is None:
            self._began_s = elapsed_s
        news = False
        for place, pattern in self._plan["files"].items():
            for path in sorted(Path(self._plan["out"]).glob(pattern)):
                news |= self._take_file(int(place), path, at_s=elapsed_s - self._began_s)
        news |= self._has_memory(0)
        return self._judged(elapsed_s) if news else (Verdict.GO_ON, "")

    def keep(self) -> None:
        plan = self._plan
        with suppress(OSError):
            collect(plan["out"], plan["files"].values(), start=plan["start"])

    def _take_file(self, place: int, path: Path, *, at_s: float) -> bool:
        """Process new rows of a file; return whether one has a time. A large or unreadable file is
        left to be read at the end."""
        try:
            size = path.stat().st_size
            if size == self._sizes.get(path, 0) or size > LARGEST_FILE:
                return False
            rows = whole_rows_of(self._figures.readers[place], path)
        except OSError:
            return False
        news, before = False, self._taken.get(path, 0)
        for row in rows[before:]:
            timed = self._figures.take(place, row.values, rank=0, at_s=row.at_s)
            news |= timed and self._is_clock(0, at_s)
        self._sizes[path], self._taken[path] = size, max(before, len(rows))
        return news

    def _has_memory(self, rank: int) -> bool:
        reported = self._figures.ranks.get(rank)
        if not self._waits_for_memory or reported is None or reported.peak_memory_gib is None:
            return False
        self._waits_for_memory = False
        return True

    def _is_clock(self, rank: int, at_s: float) -> bool:
        if self._clock is None:
            # Each remaining start takes as long to get this far.
            self._owed_s = self._plan["starts_owed"] * at_s
        if self._clock is None or rank < self._clock:
            self._clock = rank
        return rank == self._clock

    def _judged(self, elapsed_s: float) -> tuple[Verdict, str]:
        figures = self._figures
        reported, not_numbers = figures.iterations, figures.not_numbers
        if not reported:
            return Verdict.GO_ON, ""
        last = reported[-1].step
        place, self.iteration = figures.part_of(last), last + 1 - figures.first
        iterations = figures.measured(place)
        times_s = [i.time_s or 0.0 for i in iterations if i.step not in not_numbers]
        if not times_s:
            return Verdict.GO_ON, ""
        self._times_s[place] = times_s
        decision, why = self._verdict(place, elapsed_s=elapsed_s)
        if decision is Verdict.ENOUGH and (self._waits_for_memory or not self._plan["ends_early"]):
            return Verdict.GO_ON, ""
        return decision, why


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:], watching=StartWatch))
