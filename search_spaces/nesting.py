"""Nesting depth of user input."""

from __future__ import annotations

from typing import Any

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
