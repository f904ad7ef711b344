"""Watches the log of one start of a trainer that an adapter describes, as `run_watch` does.

What a line tells is found by the adapter's own readers. As with `run_watch`, this module's text
goes along to nodes where this package is not installed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from evaluators.adapter.figures import StartFigures, StartPart
from evaluators.adapter.stamped_line import LINE, found_in
from evaluators.program.run_watch import RunWatch, main
from evaluators.stopping_rule import Verdict


class StartWatch(RunWatch):
    """What the log of one start has told so far.

    Args:
        plan: of `run_watch`, with the start's number, its parts, each one of the segments, and the
            adapter's readers. Where `ends_early` is false, or while a memory that it is to tell is
            not told, enough is no reason to end it.
    """

    def __init__(self, plan: Mapping[str, Any]) -> None:
        super().__init__(plan)
        readers: Any = [SimpleNamespace(**reader) for reader in plan["readers"]]
        parts = [StartPart(**part) for part in plan["parts"]]
        self._figures = StartFigures(readers, parts, echoed=())
        self._patterns = [(n, re.compile(r.log)) for n, r in enumerate(readers) if r.log]
        self._clock: int | None = None
        self._waits_for_memory = plan["tells_memory"]

    def take(self, line: str, *, elapsed_s: float) -> tuple[Verdict, str]:
        """Read a line of the log; return whether the start is to go on, and why not."""
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
        told = self._figures.ranks.get(rank)
        if self._waits_for_memory and told and told.peak_memory_gib is not None:
            self._waits_for_memory, news = False, True
        return self._judged(elapsed_s) if news else (Verdict.GO_ON, "")

    def _is_clock(self, rank: int, at_s: float) -> bool:
        """Take in that a rank has told a time; return whether none below it did so yet."""
        if self._clock is None:
            # Each start that is still to come takes as long to get so far.
            self._owed_s = self._plan["starts_owed"] * at_s
        if self._clock is None or rank < self._clock:
            self._clock = rank
        return rank == self._clock

    def _judged(self, elapsed_s: float) -> tuple[Verdict, str]:
        """Return what follows from the iterations that are told."""
        figures = self._figures
        told, not_numbers = figures.iterations, figures.not_numbers
        if not told:
            return Verdict.GO_ON, ""
        place, self.iteration = figures.part_of(told[-1].step), told[-1].step + 1 - figures.first
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
