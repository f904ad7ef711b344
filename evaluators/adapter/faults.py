"""Collect all problems of a file, to report them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from search_spaces.errors import InvalidInput, closest


@dataclass(kw_only=True)
class AdapterFaults:
    """The problems of one adapter.

    Attributes:
        source: its file.
    """

    source: str
    problems: list[InvalidInput] = field(default_factory=list)

    def add(self, key: str, value: object, reason: str, *, valid: str = "") -> None:
        told = f"{reason} (in {self.source})"
        self.problems.append(InvalidInput(key, value, told, valid=valid))

    def unknown(self, key: str, value: object, known: Sequence[str]) -> None:
        near = closest(key.rpartition(".")[2], known, count=1)
        reason = "unknown" + (f"; did you mean {near[0]}?" if near else "")
        self.add(key, value, reason, valid=", ".join(known))
