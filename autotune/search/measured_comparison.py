"""Comparison of measured layouts with each other and with their neighbours, in which one dimension
has its next value and all others are equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from threadpoolctl import threadpool_limits

from autotune.calibration.observations import columns_of
from autotune.cost_model.columns import Columns
from autotune.schemas.recommendations import Neighbour
from autotune.search.evidence import Evidence, Known
from autotune.search.layouts import LAYOUT_DIMENSIONS, Floats, Integers, as_numbers
from autotune.search.stopping import DRAWS, Rival
from autotune.search.trial import SearchTrial
from autotune.words.dimensions import value_words
from search_spaces.dimensions import DIMENSIONS, Scalar
from search_spaces.lattice import Lattice
from search_spaces.space import SearchSpace
from search_spaces.strategy import Strategy

STEPPED = tuple(name for name in DIMENSIONS if name in LAYOUT_DIMENSIONS)
INTERVAL = (10.0, 50.0, 90.0)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step in one dimension, and the trial of the layout that it leads to, if any."""

    dimension: str
    strategy: Strategy
    trial: SearchTrial | None

    @property
    def state(self) -> Literal["ok", "oom", "failed"] | None:
        """The end of its trial; None if there is none, it runs, or it was refused."""
        if self.trial is None or self.trial.state not in {"ok", "failed"}:
            return None
        if self.trial.state == "ok":
            return "ok"
        return "oom" if self.trial.out_of_memory else "failed"

    @classmethod
    def all_of(
        cls,
        lattice: Lattice,
        strategy: Strategy,
        trials: Sequence[SearchTrial],
        *,
        settings: Mapping[str, Sequence[Scalar]],
    ) -> list[Step]:
        """Return the steps to the next lower and the next higher value of each dimension in
        `lattice`; all dimensions but GAS stay equal.

        Of several GAS values, the measured one is taken, else the one whose global batch is closest
        to the strategy's.

        Args:
            settings: dimensions of the trainer's own -> their values, in order.
        """
        if any(strategy.value(name) not in values for name, values in settings.items()):
            return []
        stepped = (*STEPPED, *settings)
        alone = Lattice.of([strategy], gpus_per_node=lattice.gpus_per_node)
        numbers, own = _numbers(lattice, settings), _numbers(alone, settings)[0]
        distance = np.abs(np.log(lattice.global_batch_size / alone.global_batch_size[0]))
        equal = numbers == own
        by_success = sorted(trials, key=lambda trial: trial.state == "ok")
        tried = {trial.strategy.layout_key(): trial for trial in by_success}
        steps: list[Step] = []
        for column, name in enumerate(stepped):
            others_equal = np.delete(equal, column, axis=1).all(axis=1)
            rows = np.flatnonzero(others_equal & ~equal[:, column])
            values = numbers[rows, column]
            for value in _nearest(values, int(own[column])):
                same = rows[values == value]
                there = lattice.strategy(int(same[np.argmin(distance[same])]))
                trial = tried.get(there.layout_key())
                steps.append(
                    cls(
                        dimension=name,
                        strategy=trial.strategy if trial and trial.state == "ok" else there,
                        trial=trial,
                    )
                )
        return steps


def _nearest(values: Integers, own: int) -> list[int]:
    below, above = values[values < own], values[values > own]
    nearest = [int(below.max())] if len(below) else []
    return [*nearest, int(above.min())] if len(above) else nearest


def _numbers(lattice: Lattice, settings: Mapping[str, Sequence[Scalar]]) -> Integers:
    columns = [as_numbers(name, lattice[name], settings) for name in (*STEPPED, *settings)]
    return np.stack(columns, axis=1)


@dataclass(frozen=True, kw_only=True)
class MeasuredComparison:
    """Compares measured layouts by joint draws from the calibration.

    Attributes:
        seed: of the draws.
    """

    evidence: Evidence
    seed: int

    @property
    def _space(self) -> SearchSpace:
        return self.evidence.space

    def neighbours(self, known: Known, best: Strategy) -> list[Neighbour]:
        """Return the layouts one step away from a measured strategy, compared with it; empty
        without a successful trial of it. Predicted ratios are medians of joint draws."""
        each = [trial for trial in known.trials if trial.stands_for is None]
        own = next((t for t in each if t.strategy == best and t.state == "ok"), None)
        if own is None:
            return []
        steps = Step.all_of(self._space.lattice(), best, each, settings=self._space.beyond_all)
        strategies = [best, *(step.strategy for step in steps)]
        rates = self._drawn(known, strategies)
        gpus = self._space.machine.gpus_per_node
        columns = Columns.of(self._space.transformer, Lattice.of(strategies, gpus_per_node=gpus))
        fits = self.evidence.calibration(known.ended).fit_probability(
            columns, headroom_gib=self.evidence.headroom_gib
        )
        ends = np.exp(np.percentile(rates - rates[:, :1], INTERVAL, axis=0)).T.tolist()
        found = []
        for step, drawn, fit in zip(steps, ends[1:], fits[1:].tolist(), strict=True):
            low, relative, high = drawn
            if step.state == "ok" and step.trial is not None:
                lead = self.evidence.log_rate(step.trial) - self.evidence.log_rate(own)
                relative = float(np.exp(lead))
            known_ratio = step.state in {"ok", None}
            found.append(
                Neighbour(
                    dimension=step.dimension,
                    step=value_words(step.dimension, step.strategy.value(step.dimension)),
                    strategy=step.strategy,
                    state=step.state,
                    relative_to_best=relative if known_ratio else None,
                    relative_low=min(low, relative) if known_ratio else None,
                    relative_high=max(high, relative) if known_ratio else None,
                    fit_probability=self._fits(step.trial, otherwise=fit),
                )
            )
        return found

    def _fits(self, trial: SearchTrial | None, *, otherwise: float) -> float:
        if trial is None or (trial.state != "ok" and not trial.out_of_memory):
            return otherwise
        return float(not self.evidence.is_too_large(trial))

    def rivals(self, known: Known, best: Strategy, others: Sequence[Strategy]) -> list[Rival]:
        """Compare each of `others` with `best`; all are measured or projected, inside the space or
        not."""
        return Rival.all_of(self._drawn(known, [best, *others]))

    def _drawn(self, known: Known, strategies: Sequence[Strategy]) -> Floats:
        """Return joint draws of the logarithms of the strategies' rates, shape (DRAWS, n).

        Strategies timed on few nodes are compared there: a change of width affects them alike.
        """
        narrow = {t.full: t for t in known.ended if t.stands_for and t.state == "ok"}
        runs = [
            narrow.get(each, SearchTrial(strategy=each, state="running")) for each in strategies
        ]
        transformer, machine = self._space.transformer, self._space.machine
        columns = columns_of([run.run(transformer) for run in runs], machine)
        work = [self.evidence.work_of(run, known) for run in runs]
        generator = np.random.default_rng([self.seed, len(strategies)])
        calibration = self.evidence.calibration(known.ended)
        with threadpool_limits(limits=1, user_api="blas"):
            times = calibration.time.draws(columns, count=DRAWS, generator=generator)
        return np.asarray(np.array(work) - times)
