"""Builds up one run, line by line."""

from __future__ import annotations

from dataclasses import dataclass

from evaluators.training_log.failures import Failures
from evaluators.training_log.iteration_line import Piece, Start, begins_another, piece_of
from evaluators.training_log.overflow_line import Overflows
from evaluators.training_log.power_lines import PowerLines
from evaluators.training_log.run import Iteration, PeakMemory, Run

MOST_RANKS = 200_000
# Lines after which the rest of a broken iteration line is taken to be lost.
PATIENCE = 200


@dataclass(kw_only=True)
class _Draft:
    """An iteration line that has begun, and may go on after another rank's output."""

    start: Start
    line: int
    piece: Piece
    overflows: int
    after_evaluation: bool

    def iteration(self) -> Iteration | None:
        """None where the time was lost."""
        base = Iteration(
            line=self.line,
            number=self.start.number,
            of=self.start.of,
            accumulation=self.start.accumulation,
            elapsed_s=0.0,
            overflows=self.overflows,
            after_evaluation=self.after_evaluation,
        )
        return self.piece.iteration(base)


class RunBuilder:
    """What is known of a run so far."""

    def __init__(self) -> None:
        self.failures = Failures()
        self.overflows = Overflows()
        self.power = PowerLines()
        self.lines = 0
        self._iterations: list[Iteration] = []
        self._damaged: list[int] = []
        self._memory: dict[int, PeakMemory] = {}
        self._evaluations = 0
        self._evaluated = False
        self._draft: _Draft | None = None
        self._patience = 0
        self._latest: Start | None = None
        self._accumulations: set[int | None] = set()

    def ends_before(self, start: Start) -> bool:
        """Whether an iteration line is another run's, because the count falls back."""
        latest = self._latest
        if latest is None or start.text == latest.text:
            return False
        if start.accumulation == latest.accumulation:
            return start.number <= latest.number
        return start.accumulation in self._accumulations

    def begin(self, start: Start) -> None:
        """An iteration line; nothing new where the log has it twice."""
        if self._latest is not None and start.text == self._latest.text:
            return
        self._settle(at_end=False)
        self.lines += 1
        self._latest = start
        self._accumulations.add(start.accumulation)
        self._draft = _Draft(
            start=start,
            line=self.lines,
            piece=start.piece,
            overflows=self.overflows.taken(),
            after_evaluation=self._evaluated,
        )
        self._evaluated = False
        self._patience = PATIENCE
        self.failures.iterated()
        self._settle_if_whole()

    @property
    def attentive(self) -> bool:
        """Whether an iteration line is broken, so that the next lines matter whatever they hold.

        Where its rest passed unseen, that of a later line whose beginning was broken would be
        taken for it.
        """
        return self._draft is not None or self.failures.attentive

    def go_on(self, text: str) -> bool:
        """Read a line that may be a later piece of a broken one; return whether it is.

        A piece that has the counts of a beginning, or a field that is there already, is of a
        later line whose beginning was broken.
        """
        if self._draft is None:
            return False
        self._patience -= 1
        piece = piece_of(text)
        if begins_another(text) or self._patience < 0 or not self._draft.piece.goes_on_in(piece):
            self._settle(at_end=False)
            return False
        self._draft.piece = self._draft.piece.joined(piece)
        self._settle_if_whole()
        return bool(piece.told)

    def evaluated(self) -> None:
        self._evaluations += 1
        self._evaluated = True

    def peaked(self, rank: int, peak: PeakMemory) -> None:
        before = self._memory.get(rank, PeakMemory())
        if rank in self._memory or len(self._memory) < MOST_RANKS:
            self._memory[rank] = PeakMemory(
                allocated_gib=_larger(before.allocated_gib, peak.allocated_gib),
                reserved_gib=_larger(before.reserved_gib, peak.reserved_gib),
            )

    def _settle_if_whole(self) -> None:
        if self._draft is not None and (self._draft.piece.complete or self._draft.piece.closed):
            self._settle(at_end=False)

    def _settle(self, *, at_end: bool) -> None:
        """Count the drafted iteration, or its loss.

        At the end of the log a line that is not known to be whole does not count: what would
        have followed might have said otherwise.
        """
        draft, self._draft = self._draft, None
        if draft is None:
            return
        iteration = None if at_end else draft.iteration()
        if iteration is None:
            self._damaged.append(draft.start.number)
        else:
            self._iterations.append(iteration)

    def finish(self) -> Run | None:
        """The run; None if nothing was told of one."""
        self._settle(at_end=True)
        run = Run(
            iterations=tuple(self._iterations),
            damaged=tuple(self._damaged),
            memory=dict(sorted(self._memory.items())),
            overflows=self.overflows.total(),
            evaluations=self._evaluations,
            power=self.power.power(),
            failure=self.failures.cause(),
        )
        return run if run != Run() else None

    @property
    def begun(self) -> bool:
        """Whether it has come so far that a start banner is another run's."""
        return bool(self.lines or self._memory or self._evaluations or self.failures.cause())


def _larger(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)
