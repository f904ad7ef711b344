"""Reads a log as a stream, block by block, in constant memory."""

from __future__ import annotations

import re
from pathlib import Path

from evaluators.training_log import (
    error_line,
    iteration_line,
    memory_line,
    overflow_line,
    power_lines,
)
from evaluators.training_log.iteration_line import Start, starts
from evaluators.training_log.label import labelled, text_of
from evaluators.training_log.lines import Lines
from evaluators.training_log.memory_line import memory_reports
from evaluators.training_log.run import Run, TrainingLog
from evaluators.training_log.run_builder import RunBuilder

BLOCK = 1 << 20
MOST_RUNS = 1000
MOST_ITERATIONS = 100_000
# An error says what it is at its beginning.
ERROR_CHARACTERS = 2000

_EVALUATION = re.compile(r"\b\w{1,20} loss at (?:iteration|the end)\b")
# Rank 0 of every Megatron says this once it has understood its arguments.
_BANNER = "using world size: "
_SIGNS = (
    *iteration_line.SIGNS,
    memory_line.SIGN,
    " loss at ",
    _BANNER,
    power_lines.SIGN,
    *overflow_line.SIGNS,
    *error_line.SIGNS,
)


class LogReader:
    """Takes a log in blocks of any size, and tells what it says.

    It keeps no more than 100,000 iterations of a log, and no line of over 64 KiB.
    """

    def __init__(self) -> None:
        self._lines = Lines(_SIGNS, self._take)
        self._run = RunBuilder()
        self._runs: list[Run] = []
        self._kept = 0

    def feed(self, block: bytes) -> None:
        self._lines.feed(block)

    def finish(self) -> TrainingLog:
        """All that was told; the reader is not to be fed after it."""
        cut, rest = self._lines.finish()
        if rest:
            # What was cut may still say why it ended, but no figure.
            self._run.failures.read(text_of(rest)[:ERROR_CHARACTERS])
        self._end_run()
        return TrainingLog(runs=tuple(self._runs), cut=cut)

    def _take(self, line: bytes) -> bool:
        """Read one line; whether all that follow are wanted, whatever they hold."""
        text = text_of(line)
        if not self._records(text):
            self._run.failures.read(text[:ERROR_CHARACTERS])
        return self._run.attentive

    def _records(self, text: str) -> bool:
        """Whether it is a line that training writes when all is well."""
        told = self._iterates(text)
        if _BANNER in text and self._run.begun:
            self._end_run()
        if _EVALUATION.search(text):
            self._run.evaluated()
            told = True
        if "verflow" in text or "OVERFLOW!" in text:
            told |= self._run.overflows.read(text, rank=labelled(text).rank)
        if power_lines.SIGN in text:
            told |= self._run.power.read(text, after=self._run.lines)
        if memory_line.SIGN in text:
            told |= self._peaks(text)
        return told

    def _peaks(self, text: str) -> bool:
        told = False
        for rank, peak in memory_reports(text):
            self._run.peaked(rank, peak)
            told = True
        return told

    def _iterates(self, text: str) -> bool:
        begun = False
        for start in starts(text) if "|" in text else ():
            self._begin(start)
            begun = True
        return begun or self._run.go_on(text)

    def _begin(self, start: Start) -> None:
        if self._run.ends_before(start):
            self._end_run()
        if self._kept < MOST_ITERATIONS:
            self._kept += 1
            self._run.begin(start)

    def _end_run(self) -> None:
        run = self._run.finish()
        if run is not None and len(self._runs) < MOST_RUNS:
            self._runs.append(run)
        self._run = RunBuilder()


def read_log(path: Path) -> TrainingLog:
    """What the log at `path` tells. Raises OSError where it cannot be read."""
    reader = LogReader()
    with path.open("rb", buffering=0) as file:
        while block := file.read(BLOCK):
            reader.feed(block)
    return reader.finish()
