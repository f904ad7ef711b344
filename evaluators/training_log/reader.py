"""Read a log as a stream, block by block, in constant memory."""

from __future__ import annotations

import re
from pathlib import Path

from evaluators.training_log import error_line
from evaluators.training_log.cause import RootCause
from evaluators.training_log.lines import LogLines, text_of
from evaluators.training_log.log import Iteration, TrainingLog
from evaluators.training_log.power import POWER_SIGN, PowerLines

BLOCK = 1 << 20
MOST_ITERATIONS = 100_000
# The message of an error is at its beginning.
ERROR_CHARACTERS = 2000

# "GAS 4, iteration 2 | 123.4 ms | loss 7.1000000"
_ITERATION = re.compile(r"\bGAS ([0-9]{1,9}), iteration ([0-9]{1,9}) \| ([0-9]{1,12}\.[0-9]) ms \|")
_SIGNS = (", iteration ", POWER_SIGN, *error_line.SIGNS)
"""A line without any of these has no measurement and no error."""


class LogReader:
    """Read a log in blocks of any size; at most 100,000 iterations, and no line of over 64 KiB."""

    def __init__(self) -> None:
        self._lines = LogLines(_SIGNS, self._take)
        self._root_cause = RootCause()
        self._power = PowerLines()
        self._iterations: list[Iteration] = []
        self._latest: dict[int, int] = {}
        self._count = 0

    def feed(self, block: bytes) -> None:
        self._lines.feed(block)

    def finish(self) -> TrainingLog:
        """Return the content of the log; call it once, at the end."""
        rest = self._lines.finish()
        if rest:
            # A cut line may still contain the cause of the end, but no measurement.
            self._root_cause.read(text_of(rest)[:ERROR_CHARACTERS])
        return TrainingLog(
            iterations=tuple(self._iterations),
            power=self._power.power(),
            failure=self._root_cause.cause(),
        )

    def _take(self, line: bytes) -> bool:
        text = text_of(line)
        iterations = _ITERATION.findall(text)
        for accumulation, number, milliseconds in iterations:
            # The nearest float, which a division by 1000 may miss.
            self._iterate(int(accumulation), int(number), float(f"{milliseconds}e-3"))
        sampled = POWER_SIGN in text and self._power.read(text, after=self._count)
        if not iterations and not sampled:
            self._root_cause.read(text[:ERROR_CHARACTERS])
        return self._root_cause.attentive

    def _iterate(self, accumulation: int, number: int, elapsed_s: float) -> None:
        if number <= self._latest.get(accumulation, 0):  # another start
            self._iterations, self._latest = [], {}
            self._root_cause = RootCause()
        self._latest[accumulation] = number
        self._count += 1
        self._root_cause.iterated()
        if self._count <= MOST_ITERATIONS:
            iteration = Iteration(
                line=self._count, number=number, elapsed_s=elapsed_s, accumulation=accumulation
            )
            self._iterations.append(iteration)


def read_log(path: Path) -> TrainingLog:
    """Return the content of the log at `path`; raises OSError."""
    reader = LogReader()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            reader.feed(block)
    return reader.finish()
