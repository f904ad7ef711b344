"""Plan the starts of a trial with an adapter: which GAS each measures, and for how many
iterations."""

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
    """The starts that an adapter plans for a request."""

    adapter: Adapter
    request: TrialRequest

    @property
    def warmup_iterations(self) -> int:
        """Warm-up iterations at the beginning of each start."""
        return max(self.adapter.warmup_iterations, self.request.protocol.warmup_iterations)

    @property
    def watched(self) -> bool:
        """Whether output of a start may end it early."""
        return self.request.protocol.adaptive

    @cached_property
    def parts(self) -> tuple[tuple[StartPart, ...], ...]:
        """The parts of each start: one per measured GAS, ascending. Two values share a start if the
        trainer can increase its batch while running. The warm-up then uses the protocol's own GAS,
        without measuring it; otherwise that of its start.

        Raises:
            InvalidInput: the adapter's expression for this has no value.
        """
        return tuple(tuple(self._start(values)) for values in self._shared(self._values))

    def plan(self, number: int, *, python: str, out: str) -> StartPlan:
        """Return the plan of a start; starts are numbered from 1."""
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
        """GAS values in the order in which they run."""
        values, measured = self.request.protocol.values, self.request.protocol.accumulations
        if values == measured or self._refuses(values[0]) or not self._in_one(*values[:2]):
            return measured
        return values

    def _refuses(self, accumulation: int) -> bool:
        """Return whether the trainer cannot run a GAS, which then cannot serve as a warm-up."""
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
        """Yield the parts of a start. Only the last one may be ended before its maximum number of
        iterations, since the length of an earlier batch is fixed."""
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
    return int(part.names["gradient_accumulation_steps"] or 0)
