"""Texts with expressions in braces: `"{micro_batch_size * 2}"`, `"--steps={iterations}"`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from evaluators.adapter.expression import Expression, ExpressionFault, Names, Value, parse

_PART = re.compile(
    r"(?P<brace>\{\{|\}\})|\{(?P<expression>(?:[^{}'\"]|'[^']*'|\"[^\"]*\")*)\}|(?P<text>[^{}]+)"
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Template:
    """A parsed template; `{{` and `}}` are literal braces.

    Attributes:
        parts: literal texts and expressions.
    """

    parts: tuple[str | Expression, ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset().union(*(p.names for p in self.parts if isinstance(p, Expression)))

    def value(self, names: Names) -> Value:
        """Return the expression's value if the template is one expression; otherwise the text.

        Raises:
            ExpressionFault: an expression cannot be evaluated.
        """
        if len(self.parts) == 1 and isinstance(self.parts[0], Expression):
            return self.parts[0].value(names)
        return "".join(p if isinstance(p, str) else written(p.value(names)) for p in self.parts)


def written(value: Value) -> str:
    """Format a value for a command line: empty for None, lower case for true and false.

    Floats are formatted as in Python: `2.0`.
    """
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


@lru_cache(maxsize=4096)
def template(text: str) -> Template:
    return Template(parts=tuple(_parts(text)))


def _parts(text: str) -> Iterator[str | Expression]:
    at = 0
    while at < len(text):
        match = _PART.match(text, at)
        if match is None:
            raise ExpressionFault(f"a brace of {text!r} has no other; write {{{{ for a brace")
        if match["expression"] is not None:
            yield parse(match["expression"].strip())
        else:
            yield match["brace"][0] if match["brace"] else match["text"]
        at = match.end()
