"""Knobs to try on a layout, and their starts: plain rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from search_spaces.dimensions import Scalar
from search_spaces.errors import InvalidInput
from search_spaces.knob import Numerics

Settings: TypeAlias = tuple[tuple[str, Scalar], ...]
"""Knobs and values that a start changes, sorted by knob; empty for the baseline."""

BASELINE: Settings = ()


@dataclass(frozen=True, kw_only=True)
class KnobOption:
    """One value of one knob, other than the baseline's.

    Attributes:
        numerics: what it may change in the losses.
        reopens: whether the sign of its effect depends on the layout: it is measured at both
            micro-batch sizes.
    """

    knob: str
    value: Scalar
    numerics: Numerics
    reopens: bool = False

    @property
    def settings(self) -> Settings:
        return ((self.knob, self.value),)


@dataclass(frozen=True, kw_only=True)
class PlannedStart:
    settings: Settings
    micro_batch_size: int


@dataclass(frozen=True, kw_only=True)
class KnobStart:
    """One start of a process, and what it measured.

    Attributes:
        iteration_time_s: median of its timed steps; None if it failed.
        timed_steps: number of them, the same for all: the first steps of a run are faster.
        losses: from the first step.
    """

    settings: Settings
    micro_batch_size: int
    iteration_time_s: float | None
    timed_steps: int
    losses: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class KnobQuestion:
    """Which knobs to try on a layout, and what that may cost.

    Attributes:
        micro_batch_sizes: the layout's, and perhaps another for options that reopen the layout.
        training_node_hours: of the training that will use the result; if not known, a start is
            worth it while a gain is likely enough.
        most_starts: of one option.
        seed: of the order of starts.
    """

    options: tuple[KnobOption, ...]
    micro_batch_sizes: tuple[int, ...]
    start_node_hours: float
    training_node_hours: float | None = None
    most_starts: int = 12
    seed: int = 0


def check(rows: Sequence[KnobStart]) -> None:
    """Raise InvalidInput for rows that cannot be compared."""
    for row in rows:
        seconds, steps, others = row.iteration_time_s, row.timed_steps, rows[0].timed_steps
        if seconds is not None and not 0.0 < seconds < math.inf:
            raise InvalidInput("iteration_time_s", seconds, "is no time", valid="seconds above 0")
        if steps != others:
            reason = "short runs cannot be compared with long ones"
            raise InvalidInput("timed_steps", steps, reason, valid=f"{others}, as in other starts")
