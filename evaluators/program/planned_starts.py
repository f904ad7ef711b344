"""The starts of a trial of an adapter's trainer: which GAS each measures, and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from evaluators.adapter.adapter import Adapter
from evaluators.adapter.figures import StartPart
from evaluators.adapter.rendering import StartPlan, in_one_start, names_of, refuse
from evaluators.trial import TrialRequest
from search_spaces.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class PlannedStarts:
    """What an adapter makes of a request."""

    adapter: Adapter
    request: TrialRequest

    @property
    def warmup_iterations(self) -> int:
        """The iterations that are left out at the beginning of each start."""
        return max(self.adapter.warmup_iterations, self.request.protocol.warmup_iterations)

    @property
    def watched(self) -> bool:
        """Whether what a start tells may end it."""
        return self.request.protocol.adaptive

    @cached_property
    def parts(self) -> tuple[tuple[StartPart, ...], ...]:
        """The parts of each start: each GAS that is measured, rising; two values share one where
        the trainer can go on with a larger batch. There the warm-up has the GAS that the protocol
        has for it, which measures nothing; elsewhere that of its start, which has no other.

        Raises:
            InvalidInput: the adapter cannot say whether it can.
        """
        return tuple(tuple(self._start(values)) for values in self._shared(self._values))

    def plan(self, number: int, *, python: str, out: str) -> StartPlan:
        """Return what a start is to train; they are counted from 1."""
        *before, last = self.parts[number - 1]
        request = self.request
        return StartPlan(
            transformer=request.transformer,
            machine=request.machine,
            strategy=request.strategy.with_accumulation(accumulation_of(last)),
            iterations=sum(part.iterations for part in (*before, last)),
            python=python,
            out=out,
            seed=1 + request.seed,
            first_accumulation=accumulation_of(before[0]) if before else None,
            first_iterations=before[0].iterations if before else 0,
        )

    @property
    def _values(self) -> tuple[int, ...]:
        """The GAS values that are run, in their order."""
        values, measured = self.request.protocol.values, self.request.protocol.accumulations
        if values == measured or self._refuses(values[0]) or not self._in_one(*values[:2]):
            return measured
        return values

    def _refuses(self, accumulation: int) -> bool:
        """Return whether the trainer cannot run a GAS, which is then no warm-up for another."""
        request = self.request
        strategy = request.strategy.with_accumulation(accumulation)
        try:
            refuse(self.adapter, request.transformer, request.machine, strategy)
        except InvalidInput:
            return True
        return False

    def _shared(self, accumulations: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Yield the GAS values of each start."""
        while accumulations:
            pair = accumulations[:2]
            values = pair if len(pair) == 2 and self._in_one(*pair) else pair[:1]
            yield values
            accumulations = accumulations[len(values) :]

    def _in_one(self, first: int, last: int) -> bool:
        request = self.request
        strategy = request.strategy.with_accumulation(last)
        return in_one_start(self.adapter, request.transformer, request.machine, strategy, first)

    def _start(self, accumulations: tuple[int, ...]) -> Iterator[StartPart]:
        """Yield the parts of a start. Only its last one may be ended before it has as many
        iterations as are measured at most: a batch before it lasts as long as it was planned to."""
        request, protocol = self.request, self.request.protocol
        ended = self.watched and self.adapter.ends_early
        for accumulation in accumulations:
            warmup = self.warmup_iterations if accumulation == accumulations[0] else 0
            is_last = accumulation == accumulations[-1]
            measured = protocol.most if ended and is_last else protocol.measured_iterations
            if accumulation not in protocol.accumulations:
                measured = 0
            strategy = request.strategy.with_accumulation(accumulation)
            yield StartPart(
                names=names_of(self.adapter, request.transformer, request.machine, strategy),
                iterations=warmup + measured,
                warmup_iterations=warmup,
            )


def accumulation_of(part: StartPart) -> int:
    """Return the GAS of a part."""
    return int(part.names["gradient_accumulation_steps"] or 0)
