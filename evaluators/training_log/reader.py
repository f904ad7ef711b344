"""Read a log as a stream, block by block, in constant memory."""

from __future__ import annotations

import re
from pathlib import Path

from evaluators.training_log import error_line, reports
from evaluators.training_log.cause import RootCause
from evaluators.training_log.lines import LogLines, labelled, text_of
from evaluators.training_log.log import Iteration, LoggedRun, MicroBatches, PeakMemory, TrainingLog
from evaluators.training_log.reports import (
    IterationStart,
    LinePiece,
    Overflows,
    PowerLines,
    begins_another,
    deepspeeds_batch,
    memory_reports,
    piece_of,
    starts,
)

BLOCK = 1 << 20
MOST_RUNS = 1000
MOST_ITERATIONS = 100_000
# The message of an error is at its beginning.
ERROR_CHARACTERS = 2000

_EVALUATION = re.compile(r"\b\w{1,20} loss at (?:iteration|the end)\b")
# Rank 0 of every Megatron prints this after parsing its arguments.
_BANNER = "using world size: "
_SIGNS = (
    *reports.ITERATION_SIGNS,
    *reports.MEMORY_SIGNS,
    " loss at ",
    _BANNER,
    reports.POWER_SIGN,
    *reports.OVERFLOW_SIGNS,
    reports.BATCH_SIGN,
    *error_line.SIGNS,
)
"""A line without any of these has no measurement and no error."""
MOST_RANKS = 200_000
# Lines after which the rest of a broken iteration line counts as lost.
PATIENCE = 200


class _RunBuilder:
    """Collect the content of one run, in the log's order."""

    def __init__(self) -> None:
        self.root_cause = RootCause()
        self.overflows = Overflows()
        self.power = PowerLines()
        self.lines = 0
        self._iterations: list[Iteration] = []
        self._damaged: list[int] = []
        self._memory: dict[int, PeakMemory] = {}
        self._micro_batches: MicroBatches | None = None
        self._evaluations = 0
        self._evaluated = False
        # An iteration line that may continue after another rank's output: without its values so
        # far, and these.
        self._draft: tuple[Iteration, LinePiece] | None = None
        self._patience = 0
        self._latest: IterationStart | None = None
        self._accumulations: set[int | None] = set()

    def ends_before(self, start: IterationStart) -> bool:
        """Return whether an iteration line belongs to another run, because the count restarts."""
        latest = self._latest
        if latest is None or start.text == latest.text:
            return False
        if start.accumulation == latest.accumulation:
            return start.number <= latest.number
        return start.accumulation in self._accumulations

    def begin(self, start: IterationStart) -> None:
        """Record an iteration line, unless it repeats the previous one."""
        if self._latest is not None and start.text == self._latest.text:
            return
        self._settle(at_end=False)
        self.lines += 1
        self._latest = start
        self._accumulations.add(start.accumulation)
        line = Iteration(
            line=self.lines,
            number=start.number,
            of=start.of,
            accumulation=start.accumulation,
            elapsed_s=0.0,
            overflows=self.overflows.taken(),
            after_evaluation=self._evaluated,
        )
        self._draft = line, start.piece
        self._evaluated = False
        self._patience = PATIENCE
        self.root_cause.iterated()
        self._settle_if_whole()

    @property
    def attentive(self) -> bool:
        """Whether an iteration line is broken, so that all following lines are wanted.

        If its rest were skipped, the rest of a later broken line would be taken for it.
        """
        return self._draft is not None or self.root_cause.attentive

    def go_on(self, text: str) -> bool:
        """Process a line that may be a later piece of a broken one; return whether it is.

        A piece with the counts of a beginning, or with a known field, belongs to a later line
        whose beginning was broken.
        """
        if self._draft is None:
            return False
        self._patience -= 1
        line, begun = self._draft
        piece = piece_of(text)
        if begins_another(text) or self._patience < 0 or not begun.goes_on_in(piece):
            self._settle(at_end=False)
            return False
        self._draft = line, begun.joined(piece)
        self._settle_if_whole()
        return bool(piece.values)

    def evaluated(self) -> None:
        self._evaluations += 1
        self._evaluated = True

    def peaked(self, rank: int, peak: PeakMemory) -> None:
        """Record a memory report; the highest values of a rank count."""
        before = self._memory.get(rank, PeakMemory())
        if rank in self._memory or len(self._memory) < MOST_RANKS:
            self._memory[rank] = PeakMemory(
                allocated_gib=_larger(before.allocated_gib, peak.allocated_gib),
                reserved_gib=_larger(before.reserved_gib, peak.reserved_gib),
            )

    def cuts_batch(self, micro_batches: MicroBatches) -> None:
        self._micro_batches = micro_batches

    def _settle_if_whole(self) -> None:
        if self._draft is not None and (self._draft[1].complete or self._draft[1].closed):
            self._settle(at_end=False)

    def _settle(self, *, at_end: bool) -> None:
        """Record the draft as an iteration, or as damaged.

        At the end of the log, a line that may be incomplete counts as damaged.
        """
        draft, self._draft = self._draft, None
        if draft is None:
            return
        line, piece = draft
        iteration = None if at_end else piece.iteration(line)
        if iteration is None:
            self._damaged.append(line.number)
        else:
            self._iterations.append(iteration)

    def finish(self) -> LoggedRun | None:
        """Return the run; None if the log has nothing about one."""
        self._settle(at_end=True)
        run = LoggedRun(
            iterations=tuple(self._iterations),
            damaged=tuple(self._damaged),
            memory=dict(sorted(self._memory.items())),
            overflows=self.overflows.total(),
            evaluations=self._evaluations,
            micro_batches=self._micro_batches,
            power=self.power.power(),
            failure=self.root_cause.cause(),
        )
        return run if run != LoggedRun() else None

    @property
    def begun(self) -> bool:
        return bool(self.lines or self._memory or self._evaluations or self.root_cause.cause())


def _larger(first: float | None, second: float | None) -> float | None:
    return max((value for value in (first, second) if value is not None), default=None)


class LogReader:
    """Read a log in blocks of any size; at most 100,000 iterations, and no line of over 64 KiB."""

    def __init__(self) -> None:
        self._lines = LogLines(_SIGNS, self._take)
        self._run = _RunBuilder()
        self._runs: list[LoggedRun] = []
        self._kept = 0

    def feed(self, block: bytes) -> None:
        self._lines.feed(block)

    def finish(self) -> TrainingLog:
        """Return the content of the log; call it once, at the end."""
        cut, rest = self._lines.finish()
        if rest:
            # A cut line may still contain the cause of the end, but no measurement.
            self._run.root_cause.read(text_of(rest)[:ERROR_CHARACTERS])
        self._end_run()
        return TrainingLog(runs=tuple(self._runs), cut=cut)

    def _take(self, line: bytes) -> bool:
        text = text_of(line)
        if not self._records(text):
            self._run.root_cause.read(text[:ERROR_CHARACTERS])
        return self._run.attentive

    def _records(self, text: str) -> bool:
        recorded = self._iterates(text)
        if _BANNER in text and self._run.begun:
            self._end_run()
        if _EVALUATION.search(text):
            self._run.evaluated()
            recorded = True
        if "verflow" in text or "OVERFLOW!" in text:
            recorded |= self._run.overflows.read(text, rank=labelled(text).rank)
        if reports.POWER_SIGN in text:
            recorded |= self._run.power.read(text, after=self._run.lines)
        reported = any(sign in text for sign in reports.MEMORY_SIGNS)
        for rank, peak in memory_reports(text) if reported else ():
            self._run.peaked(rank, peak)
            recorded = True
        if reports.BATCH_SIGN in text and (micro_batches := deepspeeds_batch(text)):
            if self._run.lines:
                # DeepSpeed prints it once, before training: this is another start of the program.
                self._end_run()
            self._run.cuts_batch(micro_batches)
            recorded = True
        return recorded

    def _iterates(self, text: str) -> bool:
        begun = False
        for start in starts(text) if "|" in text else ():
            begun = True
            if self._run.ends_before(start):
                self._end_run()
            if self._kept < MOST_ITERATIONS:
                self._kept += 1
                self._run.begin(start)
        return begun or self._run.go_on(text)

    def _end_run(self) -> None:
        run = self._run.finish()
        if run is not None and len(self._runs) < MOST_RUNS:
            self._runs.append(run)
        self._run = _RunBuilder()


def read_log(path: Path) -> TrainingLog:
    """Return the content of the log at `path`; raises OSError."""
    reader = LogReader()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            reader.feed(block)
    return reader.finish()
