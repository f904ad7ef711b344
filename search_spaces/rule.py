"""A rule: a named predicate over a lattice, with a sentence for one strategy.

A rule of severity "refuse" makes a strategy illegal; one of severity "warn" only warns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from search_spaces.batch import GlobalBatch
from search_spaces.lattice import Lattice
from search_spaces.machine import Machine
from search_spaces.program import ProgramCapabilities
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

Severity = Literal["refuse", "warn"]


@dataclass(frozen=True)
class RuleContext:
    """Inputs of the rules besides the strategies."""

    transformer: Transformer
    machine: Machine
    batch: GlobalBatch
    program: ProgramCapabilities


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A named predicate.

    Attributes:
        demand: what it demands of any strategy, as a sentence.
        broken: mask of shape (n,), true where a lattice's strategy breaks it.
        reason: why one strategy breaks it, as a sentence with the numbers in it.
    """

    name: str
    demand: str
    broken: Callable[[Lattice, RuleContext], Any]
    reason: Callable[[Strategy, RuleContext], str]
    severity: Severity = "refuse"
