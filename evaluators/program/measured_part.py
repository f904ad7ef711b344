"""The measurement at one GAS in a start of an adapter's trainer, and all measurements of a
trial."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from autotune.measurement import AccumulationMeasurement
from evaluators.adapter.figures import ReportedIteration, StartFigures
from evaluators.adapter.log import AdapterLog
from evaluators.program.planned_starts import accumulation_of
from evaluators.program.watched_run import note_of


@dataclass(frozen=True, kw_only=True)
class MeasuredPart:
    """One part of a start in the log.

    Attributes:
        start: its number, from 1.
        place: index of the part in its start.
        least: iterations that must have been measured; 0 if the part was ended early.
    """

    figures: StartFigures
    start: int
    place: int
    least: int

    @property
    def gradient_accumulation_steps(self) -> int:
        return accumulation_of(self.figures.parts[self.place])

    @cached_property
    def iterations(self) -> list[ReportedIteration]:
        """The iterations that count: after the warm-up, with a finite loss."""
        not_numbers = self.figures.not_numbers
        return [i for i in self._timed if i.step not in not_numbers]

    @property
    def measurement(self) -> AccumulationMeasurement:
        return AccumulationMeasurement(
            gradient_accumulation_steps=self.gradient_accumulation_steps,
            iteration_times_s=tuple(float(i.time_s or 0.0) for i in self.iterations),
        )

    @property
    def fault(self) -> str | None:
        """Why there is no measurement; None if there is one."""
        gas = f"GAS {self.gradient_accumulation_steps}"
        if self.figures.differs:
            name, asked, told = self.figures.differs
            of = f"GAS {' and '.join(str(accumulation_of(part)) for part in self.figures.parts)}"
            one = " in one start" if len(self.figures.parts) > 1 else ""
            return f"{of}{one}: the trainer says {name} = {told} where {asked} was asked for"
        told_of = self.figures.iterations
        if not told_of:
            return f"{gas}: no pattern of the adapter found the time of an iteration in its output"
        if not self._timed and self.figures.apart > 1:
            return (
                f"{gas}: the trainer tells of every {self.figures.apart}th iteration alone, too "
                "few to be measured after the warm-up: let it tell of each, or train more"
            )
        if self._missing:
            return (
                f"{gas}: the last iteration that was timed is number {told_of[-1].step} of "
                f"{self._last}, though all ended well"
            )
        if not self.iterations:
            return f"{gas}: the loss of no measured iteration is a number"
        return None

    @property
    def _last(self) -> int:
        """The number of the last required iteration."""
        return self.figures.first_measured(self.place) + self.least - 1

    @cached_property
    def _timed(self) -> list[ReportedIteration]:
        return self.figures.measured(self.place)

    @property
    def _missing(self) -> bool:
        """Whether the part ended before its last iteration; False if not every iteration is
        reported."""
        return not self._timed or self._timed[-1].step <= self._last - self.figures.apart


def measured_parts(log: AdapterLog, folder: Path, *, least: int) -> Iterator[MeasuredPart]:
    """Yield each part to measure, up to the one in which the trial was given up, if it was.

    Args:
        least: minimum iterations per GAS, unless a part was ended early.
    """
    for number, start in enumerate(log.starts, start=1):
        figures, note = start.figures, note_of(folder, number)
        end = len(figures.parts) - 1
        if note and note["given_up"]:
            end = figures.part_of(figures.first + note["iterations"] - 1)
        for place in range(end + 1):
            if figures.parts[place].only_warms_up:
                continue
            ended = bool(note) and place == end
            yield MeasuredPart(
                figures=figures, start=number, place=place, least=0 if ended else least
            )
        if note and note["given_up"]:
            return
