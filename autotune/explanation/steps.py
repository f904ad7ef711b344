"""Strategies one step away from another, inside the space or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from search_spaces.batch import GlobalBatch
from search_spaces.choices import automatic
from search_spaces.dimensions import ACCUMULATION, BY_NAME, TABLE, Scalar
from search_spaces.lattice import Lattice, Mask
from search_spaces.machine import Machine
from search_spaces.program import ProgramCapabilities
from search_spaces.rules import findings, rule_masks
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

DOUBLED = tuple(d.name for d in TABLE if d.part == "batch" and d.name != ACCUMULATION)
"""Dimensions whose other values include fractions and multiples of their own."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Possible changes of a strategy: the values of an automatic space, and the rules."""

    transformer: Transformer
    machine: Machine
    program: ProgramCapabilities

    def others(self, dimension: str, value: Scalar) -> list[Scalar]:
        """Return all other values of a dimension, numbers nearest first."""
        if not BY_NAME[dimension].is_counted:
            return [each for each in self._automatic(dimension) if each != value]
        number = int(value)
        near = {8 * number, 4 * number, 2 * number, number // 2, number // 4} - {0}
        if dimension == "num_nodes":
            values = {each for each in near if each <= self.machine.max_nodes}
        else:
            values = {int(each) for each in self._automatic(dimension)} - {number}
            values |= near if dimension in DOUBLED else set()
        return [*sorted(values, key=lambda each: abs(each - number))]

    def _automatic(self, dimension: str) -> Sequence[Scalar]:
        return automatic(
            dimension,
            self.transformer,
            self.machine,
            nodes=self.machine.max_nodes,
            program=self.program,
        )

    def legal(self, strategies: Sequence[Strategy]) -> list[Strategy]:
        """Return the distinct strategies that are legal at some global batch, in order."""
        distinct = list(dict.fromkeys(strategies))
        if not distinct:
            return []
        lattice = Lattice.of(distinct, gpus_per_node=self.machine.gpus_per_node)
        masks = rule_masks(
            lattice, self.transformer, self.machine, GlobalBatch(), program=self.program
        )
        refused: Mask = np.logical_or.reduce(list(masks.values()))
        return [each for each, broken in zip(distinct, refused, strict=True) if not broken]

    def refusal(self, strategy: Strategy) -> str | None:
        broken = findings(strategy, self.transformer, self.machine, program=self.program)
        return next((each.reason for each in broken if each.severity == "refuse"), None)


def with_values(strategy: Strategy, values: Mapping[str, Any]) -> Strategy:
    return replace(strategy, **values)


def at_batch(strategy: Strategy, batch: float, gpus_per_node: int) -> Strategy | None:
    """Return the same layout at a global batch; None if no accumulation gives it."""
    each = strategy.with_accumulation(1).global_batch_size(gpus_per_node)
    if each == 0 or batch % each:
        return None
    return strategy.with_accumulation(int(batch // each))
