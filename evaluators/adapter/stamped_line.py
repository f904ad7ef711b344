"""Parse a line of the log with the prefix of `rank_process`, and match patterns in it.

Its code on nodes uses the standard library and Python 3.8 only: the text of this module is sent to
nodes without this package.
"""

from __future__ import annotations

import re

from evaluators.adapter.expression import Value
from evaluators.adapter.figures import value_of

LINE = re.compile(r"\[start (\d{1,6}) rank (\d{1,7}) (\d{1,9}\.\d{6})s\] (.*)", re.DOTALL)
SEARCHED = 4096
"""Characters of a line that patterns are matched against."""


def found_in(text: str, pattern: re.Pattern[str]) -> dict[str, Value] | None:
    """Return the groups of a pattern's first match in a line; None without a match."""
    match = pattern.search(text[:SEARCHED])
    if match is None:
        return None
    found = {name: value_of(group) for name, group in match.groupdict("").items()}
    return {name: value for name, value in found.items() if value != ""}
