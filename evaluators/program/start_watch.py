"""Watch the log of one start of an adapter's trainer, and decide when enough was measured.

`python start_watch.py PLAN OFFSET SECONDS`, started SECONDS after the trial, reads the log from
byte OFFSET on, until the trial has measured enough or should be given up. It then writes a note
next to the log and exits with the verdict; its caller ends the start. It exits with 0 once the plan
is removed, which happens when the start ends.

The file is copied to the attempt's folder with the texts of the other modules that it imports:
it needs the standard library and Python 3.8 only.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import inf
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

from evaluators.adapter.figures import LINE, StartFigures, StartPart, found_in
from evaluators.adapter.rank_process import collect
from evaluators.adapter.readers import whole_rows_of
from evaluators.stopping_rule import Verdict, gave_up, out_of_time, verdict

LOOK_S = 0.2
"""Between two looks at the log."""
LARGEST_FILE = 4 << 20
"""Maximum bytes of a file that is reread whenever it grows."""


class StartWatch:
    """The state of one start according to its log.

    Args:
        plan: as `start_watch_files` writes it: the stopping rule, the start's number and folder,
            the file patterns of its readers by position, its parts (one per segment), and the
            adapter's readers. Only the last segment may end early, since the length of an earlier
            batch is fixed. If `ends_early` is false, or a required memory reading is missing,
            sufficient measurements do not end the start.
    """

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self._plan = plan
        self._times_s: list[list[float]] = [[] for _ in plan["segments"]]
        self._owed_s = 0.0  # in addition to the iterations at later GAS values
        self.iteration = 0
        readers: Any = [SimpleNamespace(**reader) for reader in plan["readers"]]
        parts = [StartPart(**part) for part in plan["parts"]]
        self._figures = StartFigures(readers, parts, echoed=())
        self._patterns = [(n, re.compile(r.log)) for n, r in enumerate(readers) if r.log]
        self._clock: int | None = None
        self._sizes: dict[Path, int] = {}
        self._taken: dict[Path, int] = {}
        self._began_s: float | None = None
        self._waits_for_memory = plan["reports_memory"]

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
        reported, excluded = figures.iterations, figures.excluded
        if not reported:
            return Verdict.GO_ON, ""
        last = reported[-1].step
        place, self.iteration = figures.part_of(last), last + 1 - figures.first
        iterations = figures.measured(place)
        times_s = [i.time_s or 0.0 for i in iterations if i.step not in excluded]
        if not times_s:
            return Verdict.GO_ON, ""
        self._times_s[place] = times_s
        decision, why = self._verdict(place, elapsed_s=elapsed_s)
        if decision is Verdict.ENOUGH and (self._waits_for_memory or not self._plan["ends_early"]):
            return Verdict.GO_ON, ""
        return decision, why

    def _verdict(self, place: int, *, elapsed_s: float) -> tuple[Verdict, str]:
        plan, segment, times_s = self._plan, self._plan["segments"][place], self._times_s[place]
        last = place == len(plan["segments"]) - 1
        limit_s = inf if segment["give_up_above_s"] is None else segment["give_up_above_s"]
        accumulation = segment["gradient_accumulation_steps"]
        owed_s = self._owed_s + segment["iterations_owed"] * median(times_s)
        left_s = plan["time_limit_s"] - elapsed_s - owed_s
        decision = verdict(
            times_s,
            least=plan["least"],
            most=plan["most"],
            target_spread=plan["target_spread"],
            long_s=inf if plan["long_s"] is None else plan["long_s"],
            give_up_above_s=limit_s,
            spare_s=plan["time_for_more_s"] - elapsed_s,
            left_s=left_s if owed_s else inf,
        )
        if decision is Verdict.GIVE_UP:
            return decision, gave_up(accumulation, limit_s)
        if decision is Verdict.OUT_OF_TIME:
            return decision, out_of_time(accumulation)
        # At its last iteration the start is about to end by itself.
        if decision is Verdict.ENOUGH and last and self.iteration != segment["last"]:
            middle_s = median(times_s)
            return decision, f"measured enough: {len(times_s)} iterations, {middle_s:.4g} s each"
        return Verdict.GO_ON, ""


def lines_of(log: str, offset: int, *, plan_file: str) -> Iterator[str | None]:
    """Yield each whole line of the log from this byte on, and None whenever it has no more, until
    the plan is removed."""
    rest = b""
    with open(log, "rb") as file:
        file.seek(offset)
        while os.path.exists(plan_file):
            block = file.read(1 << 20)
            if not block:
                time.sleep(LOOK_S)
                yield None
                continue
            *whole, rest = (rest + block).split(b"\n")
            for line in whole:
                yield line.decode("utf-8", "replace")


def main(plan_file: str, offset: str, before_s: str) -> int:
    """Watch until the rule holds or the start ends; return the verdict."""
    started = time.monotonic() - float(before_s)
    try:
        with open(plan_file, encoding="utf-8") as file:
            plan = json.load(file)
    except FileNotFoundError:
        return 0  # the start has ended already
    watch = StartWatch(plan)
    for line in lines_of(plan["log"], int(offset), plan_file=plan_file):
        elapsed_s = time.monotonic() - started
        if line is None:
            decision, why = watch.look(elapsed_s=elapsed_s)
        else:
            decision, why = watch.take(line, elapsed_s=elapsed_s)
        if decision is not Verdict.GO_ON:
            print(f"autotune ends the run after iteration {watch.iteration}: {why}", flush=True)
            watch.keep()
            note = {"iterations": watch.iteration, "given_up": decision is not Verdict.ENOUGH}
            with open(plan["note"] + ".partial", "w", encoding="utf-8") as file:
                json.dump(note, file)
            os.replace(plan["note"] + ".partial", plan["note"])
            return int(decision)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
