"""Knobs: settings of a trainer or a machine that are tried on a layout after it was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pydantic import ConfigDict

from search_spaces.dimensions import Scalar
from search_spaces.fields import Description

Numerics: TypeAlias = Literal["identical", "reordered", "numerics"]
"""What a knob changes in the losses: not a bit; the order of additions; what is computed."""
KnobMemory: TypeAlias = Literal["none", "more", "less", "unknown"]
"""How other values than the first change the peak memory of a GPU."""

_NO_OTHER_KEYS = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True)
class KnobConflict:
    """Values that cannot run.

    Attributes:
        when: an expression over strategy, model, machine and knobs.
        because: the reason, as the continuation of a sentence.
        source: where it is published.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    when: Description
    because: Description
    source: str = ""

    @property
    def reason(self) -> str:
        return f"{self.because} ({self.source})" if self.source else self.because


@dataclass(frozen=True, kw_only=True)
class KnobEffect:
    """A published effect of one value.

    Attributes:
        value: what was measured against `baseline`, another value; None: the knob's first.
        gain: throughput relative to the baseline, 1.05 for 5 % more; None: not published.
        memory_gib: change of peak memory per GPU.
        of: model and GPUs.
        source: where it is published.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    value: Scalar
    source: str
    gain: float | None = None
    memory_gib: float | None = None
    of: str = ""
    baseline: Scalar | None = None


@dataclass(frozen=True, kw_only=True)
class Knob:
    """A setting whose values are compared on one layout.

    Attributes:
        meaning: what it is.
        values: two or more of one type; the first is what runs without a choice.
        when: an expression over strategy, model, machine and knobs: where a value other than the
            first changes anything. Empty: everywhere.
        conflicts: values that cannot run.
        needs: modules that values other than the first import.
        numerics, memory: effects of values other than the first.
        reopens: whether the sign of its effect depends on the layout, so that another layout may be
            the fastest with it.
        changed_default: whether trainers ran otherwise before they had it, so that their trials
            until then are not comparable.
        published: effects that others measured.
        set: what it sets, place -> template: `$VARIABLE` or, in a profile, an option of srun.
            Empty where an adapter's `[set]` names the knob.
    """

    __pydantic_config__ = _NO_OTHER_KEYS

    meaning: Description
    numerics: Numerics
    values: tuple[Scalar, ...] = ()
    when: Description = ""
    conflicts: tuple[KnobConflict, ...] = ()
    needs: tuple[str, ...] = ()
    memory: KnobMemory = "unknown"
    reopens: bool = False
    changed_default: bool = False
    published: tuple[KnobEffect, ...] = ()
    set: Mapping[str, bool | int | float | Description] = field(default_factory=dict)
