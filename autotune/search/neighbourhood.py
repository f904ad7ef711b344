"""Neighbours of a layout: one dimension has its next value, all others are equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autotune.search.layouts import LAYOUT_DIMENSIONS, Floats, Integers, as_numbers
from autotune.search.trial import SearchTrial
from search_spaces.dimensions import DIMENSIONS, Scalar
from search_spaces.lattice import Lattice
from search_spaces.strategy import Strategy

STEPPED = tuple(name for name in DIMENSIONS if name in LAYOUT_DIMENSIONS)
INTERVAL = (10.0, 50.0, 90.0)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step in one dimension, and the trial of the layout that it leads to, if any."""

    dimension: str
    strategy: Strategy
    trial: SearchTrial | None

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


@dataclass(frozen=True, kw_only=True)
class NearbyLayout:
    """A layout one step away, compared with the one that it is next to.

    Attributes:
        relative: its rate over the other's: measured after a successful trial, otherwise the
            predicted median.
        relative_low, relative_high: ends of the 80 % interval of the predicted ratio.
        fit_probability: probability that memory suffices, with the headroom free; 1 or 0 after a
            trial.
    """

    step: Step
    relative: float
    relative_low: float
    relative_high: float
    fit_probability: float

    @classmethod
    def of(
        cls, step: Step, *, leads: Floats, measured_lead: float | None, fit_probability: float
    ) -> NearbyLayout:
        """Summarise draws of the logarithm of the ratio, shape (draws,)."""
        low, median, high = (float(each) for each in np.exp(np.percentile(leads, INTERVAL)))
        relative = median if measured_lead is None else float(np.exp(measured_lead))
        return cls(
            step=step,
            relative=relative,
            relative_low=min(low, relative),
            relative_high=max(high, relative),
            fit_probability=fit_probability,
        )


def _nearest(values: Integers, own: int) -> list[int]:
    """Return the greatest value below `own` and the smallest above it, if they exist."""
    below, above = values[values < own], values[values > own]
    nearest = [int(below.max())] if len(below) else []
    return [*nearest, int(above.min())] if len(above) else nearest


def _numbers(lattice: Lattice, settings: Mapping[str, Sequence[Scalar]]) -> Integers:
    columns = [as_numbers(name, lattice[name], settings) for name in (*STEPPED, *settings)]
    return np.stack(columns, axis=1)
