"""Watch the log of a run that cannot end itself early, and decide when enough was measured.

`python run_watch.py PLAN OFFSET SECONDS`, started SECONDS after the trial, reads the log from byte
OFFSET on, until the trial has measured enough or should be given up. It then writes a note beside
the log and exits with the verdict; its caller ends the run. It exits with 0 once the plan is
removed, which happens when the run ends.

The file is copied to the attempt's folder beside the text of `evaluators.stopping_rule`; like that
module it imports only the standard library and runs on Python 3.8.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from math import inf
from statistics import median
from typing import Any

from evaluators.stopping_rule import Verdict, gave_up, out_of_time, verdict

LOOK_S = 0.2
"""Between two looks at the log."""

# One Megatron writes "elapsed time per iteration (ms): 101.9 |", another
# "elapsed_time_per_iteration_ms=101.9 |"; a line that another rank's output broke does not count.
_ITERATION = re.compile(
    r"iteration(?: +| *= *)(\d{1,12})/ *\d{1,12} *\|.*?"
    r"elapsed[ _]time[ _]per[ _]iteration[ _](?:\((ms|s)\)|(ms|s))\s*[:=]\s*(\d{1,12}\.\d{1,9}) *\|"
)
# Iterations without an optimizer step, which are not timed.
_NO_STEP = re.compile(
    r"number[ _]of[ _](?:skipped|nan)[ _]iterations\s*[:=]\s*[1-9]"
    r"|(?:loss|norm)\s*[:=]\s*-?(?:nan|inf)",
    re.IGNORECASE,
)
_OVERFLOW = "OVERFLOW!"
_MEMORY = re.compile(r"\[Rank (\d{1,7})\] \(after \d+ iterations\) memory")

WAIT_FOR_MEMORY_S = 30.0
"""Maximum wait for the memory lines of all ranks that log them, which may be seconds apart; a run
without such lines is ended after this time."""


class RunWatch:
    """The state of one run, by its log so far.

    Args:
        plan: as `plan_of` writes it. Only the last segment may end early, since the
            duration of an earlier batch is fixed. `memory_ranks` ranks log their memory, once.
    """

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self._plan = plan
        self._times_s: list[list[float]] = [[] for _ in plan["segments"]]
        self._overflow = False
        self._owed_s = 0.0  # in addition to the iterations at later GAS values
        self._memory_of: set[int] = set()
        self._decided: tuple[Verdict, str, float] | None = None
        self.iteration = 0

    def take(self, line: str, *, elapsed_s: float) -> tuple[Verdict, str]:
        """Process a line of the log; return whether the run continues, and why not.

        Args:
            elapsed_s: seconds since the trial's start.
        """
        if found := _MEMORY.search(line):
            self._memory_of.add(int(found[1]))
        if self._decided is None:
            decision, why = self._judged_by(line, elapsed_s=elapsed_s)
            if decision is not Verdict.GO_ON:
                self._decided = decision, why, elapsed_s
        return self._once_memory_is_logged(elapsed_s)

    def _once_memory_is_logged(self, elapsed_s: float) -> tuple[Verdict, str]:
        if self._decided is None:
            return Verdict.GO_ON, ""
        decision, why, since_s = self._decided
        logged = len(self._memory_of) >= self._plan["memory_ranks"]
        waited = elapsed_s - since_s >= WAIT_FOR_MEMORY_S
        return (decision, why) if logged or waited else (Verdict.GO_ON, "")

    def _judged_by(self, line: str, *, elapsed_s: float) -> tuple[Verdict, str]:
        found = _ITERATION.search(line)
        if not found:
            self._overflow |= _OVERFLOW in line
            return Verdict.GO_ON, ""
        number, seconds = int(found[1]), float(found[4])
        if (found[2] or found[3]) == "ms":
            seconds /= 1000
        stepped = not (self._overflow or _NO_STEP.search(line))
        self._overflow, self.iteration = False, number
        for place, segment in enumerate(self._plan["segments"]):
            if stepped and segment["first_measured"] <= number <= segment["last"]:
                self._times_s[place].append(seconds)
                return self._verdict(place, elapsed_s=elapsed_s)
        return Verdict.GO_ON, ""

    def look(self, *, elapsed_s: float) -> tuple[Verdict, str]:
        return self._once_memory_is_logged(elapsed_s)

    def keep(self) -> None:
        """Save the run's other files before it is ended; here there are none."""

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
        # At its last iteration the run is about to end by itself.
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


def main(plan_file: str, offset: str, before_s: str, *, watching: type[RunWatch] = RunWatch) -> int:
    """Watch until the rule holds or the run ends; return the verdict."""
    started = time.monotonic() - float(before_s)
    try:
        with open(plan_file, encoding="utf-8") as file:
            plan = json.load(file)
    except FileNotFoundError:
        return 0  # the run has ended already
    watch = watching(plan)
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
