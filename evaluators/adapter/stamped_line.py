"""A line of the log as `rank_process` stamps it, and what patterns find in it.

Nothing but the standard library is imported where it runs and nothing newer than Python 3.8 is
used: the text of this module goes along to nodes where this package is not installed.
"""

from __future__ import annotations

import re

from evaluators.adapter.expression import Value
from evaluators.adapter.figures import value_of

LINE = re.compile(r"\[start (\d{1,6}) rank (\d{1,7}) (\d{1,9}\.\d{6})s\] (.*)", re.DOTALL)
SEARCHED = 4096
"""Characters of a line in which patterns are searched."""


def found_in(text: str, pattern: re.Pattern[str]) -> dict[str, Value] | None:
    """Return what the groups of a pattern find in a line; None where it is in none of it."""
    match = pattern.search(text[:SEARCHED])
    if match is None:
        return None
    found = {name: value_of(group) for name, group in match.groupdict("").items()}
    return {name: value for name, value in found.items() if value != ""}
