"""Errors about invalid input, and its nesting depth."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

LONGEST_NAME = 100
"""Characters: nothing is near a longer name, and a search for it would take long."""


class InvalidInput(ValueError):
    """An invalid input field: its name, value, the reason, and valid values.

    Every border (command line, REST, page) shows these four parts and never a traceback.
    """

    def __init__(self, field: str, value: object, reason: str, *, valid: str = "") -> None:
        self.field = field
        self.value = value
        self.reason = reason
        self.valid = valid
        super().__init__(f"{field}={value!r}: {reason}" + (f" (valid: {valid})" if valid else ""))


class InvalidInputs(ValueError):
    """Several invalid fields, reported at once."""

    def __init__(self, problems: Iterable[InvalidInput]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


def closest(name: str, known: Iterable[str], *, count: int = 3) -> list[str]:
    """Return the known names nearest to `name`, best first; empty if none is close.

    Names of which it is a whole word come first: `gpus` is short for `gpus_per_node`, and no slip
    of `gpu`.
    """
    if len(name) > LONGEST_NAME:
        return []
    by_folded = {candidate.casefold(): candidate for candidate in known}
    folded = name.casefold()
    near = difflib.get_close_matches(folded, by_folded, n=count, cutoff=0.5)
    longer = [each for each in by_folded if folded in each.split("_")]
    return [by_folded[each] for each in dict.fromkeys([*longer, *near])][:count]


def suggestion(near: Sequence[str]) -> str:
    return f"; did you mean {' or '.join(near)}?" if near else ""


DEEPEST = 100
"""Tables and lists within one another. TOML reads a key of 20,000 parts, which nothing that works
through the tables by recursion can, Python's own `repr` included."""


def demand_shallow(value: Any) -> None:
    """Raise ValueError if tables and lists are nested more than DEEPEST deep."""
    level, depth = [value], 0
    seen: set[int] = set()  # a YAML file may name one table many times
    while level:
        within = [each for each in level if isinstance(each, dict | list) and id(each) not in seen]
        seen.update(map(id, within))
        level = [
            inner
            for each in within
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        depth += bool(within)
        if depth > DEEPEST:
            raise ValueError(f"its values are nested more than {DEEPEST} deep")
