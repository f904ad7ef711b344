"""Expressions of adapters: arithmetic over named values, worked out by a reader of our own.

The grammar is a part of Python's, with Python's meaning and precedence: numbers, texts in quotes,
True, False, None, names, `+ - * / // %` (a text `*` a number repeats it), comparisons (chained ones
too), `and`, `or`, `not`, `A if B else C`, brackets, and calls of the few functions of `FUNCTIONS`.
There are no attributes, no subscripts and no other calls; length, depth and size of every value are
bounded.

Nothing but the standard library is imported and nothing newer than Python 3.8 is used: the text of
this module goes along to nodes where this package is not installed.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeAlias

Value: TypeAlias = "int | float | bool | str | None"
Names: TypeAlias = "Mapping[str, Value]"
_Node: TypeAlias = "Callable[[Names], Any]"

LONGEST = 2000
"""Characters of an expression."""
DEEPEST = 20
"""Brackets, signs, negations and conditions within one another."""
LARGEST = 10**30
"""Magnitude of a number: no count of anything comes near."""
LONGEST_TEXT = 10_000

MOST_DIGITS = 30
"""Of `round`, on either side of the point: no number has more, and each more takes longer."""


def _rounded(value: Any, digits: int = 0, *more: Any) -> Any:
    """Round as Python does, which for a whole number and -100,000,000 digits would not return."""
    if more or not isinstance(digits, int) or abs(digits) > MOST_DIGITS:
        raise ValueError(f"round takes a number and -{MOST_DIGITS} to {MOST_DIGITS} digits")
    return round(value, digits) if digits else round(value)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "float": float,
    "int": int,
    "max": max,
    "min": min,
    "round": _rounded,
    "str": str,
}
CONSTANTS: Mapping[str, Value] = {"True": True, "False": False, "None": None}
WORDS = frozenset({"and", "or", "not", "if", "else"})

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<text>'[^'\\\n]*'|\"[^\"\\\n]*\")"
    r"|(?P<sign>//|==|!=|<=|>=|[-+*/%<>(),]))",
    re.ASCII,
)
_SUMS = {"+": operator.add, "-": operator.sub}
_PRODUCTS = {
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
_COMPARISONS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class ExpressionFault(ValueError):
    """An expression that cannot be read or worked out, and why, in a sentence."""


@dataclass(frozen=True, eq=False)
class Expression:
    """One expression that was read.

    Attributes:
        names: all that it mentions.
    """

    text: str
    names: frozenset[str]
    _root: _Node

    def value(self, names: Names) -> Value:
        """Return what it comes to; raises ExpressionFault, also for a name without a value."""
        try:
            result: Value = self._root(names)
        except KeyError as error:
            raise ExpressionFault(f"{error.args[0]} has no value in `{self.text}`") from None
        except ZeroDivisionError:
            raise ExpressionFault(f"`{self.text}` divides by zero") from None
        except (TypeError, ValueError, OverflowError) as error:
            raise ExpressionFault(f"`{self.text}` cannot be worked out: {error}") from None
        return result


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    """Return the expression; raises ExpressionFault where it is none."""
    if len(text) > LONGEST:
        raise ExpressionFault(f"an expression of over {LONGEST:,} characters")
    parser = _Parser(_tokens(text), text)
    root = parser.whole()
    return Expression(text=text, names=frozenset(parser.names), _root=root)


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ExpressionFault(f"`{text}` has a {text[at:].strip()[0]!r}, which means nothing")
        kind = str(match.lastgroup)
        word = match[kind]
        tokens.append(("word" if kind == "name" and word in WORDS else kind, word))
        at = match.end()
    return [*tokens, ("end", "")]


class _Parser:
    """Turns tokens into functions of the names' values, by recursive descent."""

    def __init__(self, tokens: Sequence[tuple[str, str]], text: str) -> None:
        self.names: set[str] = set()
        self._tokens, self._text = tokens, text
        self._at = self._depth = 0

    def whole(self) -> _Node:
        root = self._condition()
        if self._kind != "end":
            raise ExpressionFault(f"`{self._text}` goes on with {self._word!r} where it should end")
        return root

    @property
    def _kind(self) -> str:
        return self._tokens[self._at][0]

    @property
    def _word(self) -> str:
        return self._tokens[self._at][1]

    def _take(self, *words: str) -> str:
        """Take the next token where it is one of these signs or words; else return nothing."""
        if self._kind in {"sign", "word"} and self._word in words:
            self._at += 1
            return self._tokens[self._at - 1][1]
        return ""

    def _demand(self, word: str) -> None:
        if not self._take(word):
            found = repr(self._word) if self._word else "its end"
            raise ExpressionFault(f"`{self._text}` has {found} where {word!r} should be")

    def _deeper(self, read: Callable[[], _Node]) -> _Node:
        self._depth += 1
        if self._depth > DEEPEST:
            raise ExpressionFault(f"`{self._text}` is nested more than {DEEPEST} deep")
        node = read()
        self._depth -= 1
        return node

    def _condition(self) -> _Node:
        then = self._either()
        if not self._take("if"):
            return then
        test = self._either()
        self._demand("else")
        otherwise = self._deeper(self._condition)
        return lambda names: then(names) if test(names) else otherwise(names)

    def _either(self) -> _Node:
        return self._chain(self._both, "or", until=True)

    def _both(self) -> _Node:
        return self._chain(self._negation, "and", until=False)

    def _chain(self, read: Callable[[], _Node], word: str, *, until: bool) -> _Node:
        """Read `X or Y or …`: the first whose truth is `until`, else the last."""
        nodes = [read()]
        while self._take(word):
            nodes.append(read())
        *earlier, last = nodes

        def node(names: Names) -> Any:
            for each in earlier:
                if bool(value := each(names)) is until:
                    return value
            return last(names)

        return node if earlier else last

    def _negation(self) -> _Node:
        if not self._take("not"):
            return self._comparison()
        inner = self._deeper(self._negation)
        return lambda names: not inner(names)

    def _comparison(self) -> _Node:
        first, others = self._operands(self._sum, _COMPARISONS)

        def node(names: Names) -> bool:
            left = first(names)
            for compare, read in others:
                right = read(names)
                if not compare(left, right):
                    return False
                left = right
            return True

        return node if others else first

    def _sum(self) -> _Node:
        return self._arithmetic(self._product, _SUMS)

    def _product(self) -> _Node:
        return self._arithmetic(self._signed, _PRODUCTS)

    def _arithmetic(
        self, read: Callable[[], _Node], operators: Mapping[str, Callable[[Any, Any], Any]]
    ) -> _Node:
        first, others = self._operands(read, operators)

        def node(names: Names) -> Any:
            left = first(names)
            for operate, each in others:
                left = _operated(operate, left, each(names))
            return left

        return node if others else first

    def _operands(
        self, read: Callable[[], _Node], operators: Mapping[str, Callable[[Any, Any], Any]]
    ) -> tuple[_Node, list[tuple[Callable[[Any, Any], Any], _Node]]]:
        first, others = read(), []
        while sign := self._take(*operators):
            others.append((operators[sign], read()))
        return first, others

    def _signed(self) -> _Node:
        sign = self._take("-", "+")
        if not sign:
            return self._atom()
        inner = self._deeper(self._signed)
        if sign == "+":
            return lambda names: +_number(inner(names))
        return lambda names: -_number(inner(names))

    def _atom(self) -> _Node:
        kind, word = self._tokens[self._at]
        if self._take("("):
            inner = self._deeper(self._condition)
            self._demand(")")
            return inner
        if kind not in {"number", "text", "name"}:
            found = repr(word) if word else "its end"
            raise ExpressionFault(f"`{self._text}` has {found} where a value should be")
        self._at += 1
        if kind == "name":
            return self._named(word)
        constant: Any = word[1:-1] if kind == "text" else _read_number(word)
        if kind == "number" and not constant <= LARGEST:
            raise ExpressionFault(f"`{self._text}` has a number above {LARGEST:.0e}")
        return lambda _: constant

    def _named(self, name: str) -> _Node:
        if self._take("("):
            return self._call(name)
        if name in CONSTANTS:
            constant = CONSTANTS[name]
            return lambda _: constant
        self.names.add(name)
        return lambda names: bounded(names[name])

    def _call(self, name: str) -> _Node:
        if name not in FUNCTIONS:
            raise ExpressionFault(
                f"`{self._text}` calls {name}; only {', '.join(FUNCTIONS)} can be called"
            )
        arguments = [self._deeper(self._condition)]
        while self._take(","):
            arguments.append(self._deeper(self._condition))
        self._demand(")")
        function = FUNCTIONS[name]
        return lambda names: bounded(function(*(argument(names) for argument in arguments)))


def _read_number(word: str) -> Any:
    return int(word) if word.isdigit() and len(word) <= len(str(LARGEST)) else float(word)


def _number(value: Any) -> Any:
    if not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is no number")
    return value


def _operated(operate: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    """Return what an operator makes of two numbers, `+` of two texts, or `*` of a text and a
    whole number."""
    if operate is operator.mul and isinstance(left, str) and isinstance(right, int):
        if len(left) * right > LONGEST_TEXT:
            raise ValueError(f"a text of over {LONGEST_TEXT:,} characters")
    elif not (operate is operator.add and isinstance(left, str) and isinstance(right, str)):
        _number(left)
        _number(right)
    return bounded(operate(left, right))


def bounded(value: Any) -> Any:
    """Return the value; raises ValueError where it is no finite number of a sensible size."""
    if isinstance(value, str):
        if len(value) > LONGEST_TEXT:
            raise ValueError(f"a text of over {LONGEST_TEXT:,} characters")
    elif isinstance(value, (int, float)) and not (isfinite(value) and abs(value) <= LARGEST):
        raise ValueError("a number that is too large, or none")
    return value
