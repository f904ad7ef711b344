"""Expressions of adapters: arithmetic over named values, a subset of Python expressions.

Python's parser reads them, and anything not listed here is refused: numbers, quoted strings, True,
False, None, names, `+ - * / // %` (a string `*` a number repeats it), comparisons (also chained,
and `in` of two strings), `and`, `or`, `not`, `A if B else C`, parentheses, and calls of the
functions in `FUNCTIONS`. There are no attributes, subscripts or other calls; length, depth and size
of values are bounded.

Standard library and Python 3.8 only: the text of this module is sent to nodes without this package.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
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
"""Maximum characters of an expression."""
DEEPEST = 50
"""Maximum nesting; a chain such as `a + b + c` counts once."""
LARGEST = 10**30
"""Maximum magnitude of a number, far above any count."""
LONGEST_TEXT = 10_000

MOST_DIGITS = 30
"""Maximum digits of `round` in either direction: no number has more, and the time grows with
them."""


def _rounded(value: Any, digits: int = 0, *more: Any) -> Any:
    if more or not isinstance(digits, int) or abs(digits) > MOST_DIGITS:
        raise ValueError(f"round takes a number and -{MOST_DIGITS} to {MOST_DIGITS} digits")
    return round(value, digits) if digits else round(value)


def _replaced(text: str, old: str, new: str) -> str:
    if len(text) + text.count(old) * len(new) > LONGEST_TEXT:
        raise ValueError(f"a text of over {LONGEST_TEXT:,} characters")
    return text.replace(old, new)


def _within(part: Any, text: Any) -> bool:
    if not isinstance(part, str) or not isinstance(text, str):
        raise TypeError("`in` takes two texts")
    return part in text


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": abs,
    "float": float,
    "int": int,
    "max": max,
    "min": min,
    "replace": lambda text, old, new: _replaced(str(text), str(old), str(new)),
    "round": _rounded,
    "str": str,
}

_ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: _within,
    ast.NotIn: lambda part, text: not _within(part, text),
}
_SIGNS: Mapping[Any, Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
}


class ExpressionFault(ValueError):
    """An expression that cannot be parsed or evaluated, with the reason as a sentence."""


@dataclass(frozen=True, eq=False)
class Expression:
    """A parsed expression.

    Attributes:
        names: all names that it mentions.
    """

    text: str
    names: frozenset[str]
    _root: _Node

    def value(self, names: Names) -> Value:
        """Return the value; raises ExpressionFault, also for a name without a value."""
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
    """Parse an expression; raises ExpressionFault if it is invalid."""
    if len(text) > LONGEST:
        raise ExpressionFault(f"an expression of over {LONGEST:,} characters")
    source = f"(\n{text}\n)" if "\n" in text else text.strip()
    try:
        tree = ast.parse(source, mode="eval")
    except SyntaxError as error:
        rest = (error.text or "")[(error.offset or 1) - 1 :].strip()
        where = f" at {rest!r}" if rest else ""
        raise ExpressionFault(f"`{text}` is no expression: {error.msg}{where}") from None
    except (ValueError, MemoryError, RecursionError):
        raise ExpressionFault(f"`{text}` is no expression") from None
    compiler = _Compiler(text, source)
    root = compiler.visit(tree.body)
    return Expression(text=text, names=frozenset(compiler.names), _root=root)


class _Compiler(ast.NodeVisitor):
    """Compiles a syntax tree to functions of the names' values; nodes without a method are
    refused."""

    def __init__(self, text: str, source: str) -> None:
        self.names: set[str] = set()
        self._text, self._source = text, source
        self._depth = 0

    def visit(self, node: ast.AST) -> _Node:
        self._depth += 1
        if self._depth > DEEPEST:
            raise ExpressionFault(f"`{self._text}` is nested more than {DEEPEST} deep")
        function: _Node = super().visit(node)
        self._depth -= 1
        return function

    def generic_visit(self, node: ast.AST) -> _Node:
        part = ast.get_source_segment(self._source, node) or type(node).__name__
        raise ExpressionFault(f"`{self._text}` has {part!r}, which means nothing")

    def visit_Constant(self, node: ast.Constant) -> _Node:
        constant: Any = node.value
        if isinstance(constant, (int, float)) and constant > LARGEST:
            raise ExpressionFault(f"`{self._text}` has a number above {LARGEST:.0e}")
        if constant is not None and not isinstance(constant, (int, float, str)):
            return self.generic_visit(node)
        return lambda _: constant

    def visit_Name(self, node: ast.Name) -> _Node:
        name = node.id
        self.names.add(name)
        return lambda names: bounded(names[name])

    def visit_Call(self, node: ast.Call) -> _Node:
        name = ast.get_source_segment(self._source, node.func) or ""
        if name not in FUNCTIONS:
            only = ", ".join(FUNCTIONS)
            raise ExpressionFault(f"`{self._text}` calls {name}; only {only} can be called")
        if node.keywords:
            return self.generic_visit(node)
        function, arguments = FUNCTIONS[name], [self.visit(each) for each in node.args]
        return lambda names: bounded(function(*(argument(names) for argument in arguments)))

    def visit_IfExp(self, node: ast.IfExp) -> _Node:
        test, then, otherwise = map(self.visit, (node.test, node.body, node.orelse))
        return lambda names: then(names) if test(names) else otherwise(names)

    def visit_BoolOp(self, node: ast.BoolOp) -> _Node:
        *earlier, last = map(self.visit, node.values)
        decides = isinstance(node.op, ast.Or)

        def value(names: Names) -> Any:
            for each in earlier:
                if bool(found := each(names)) is decides:
                    return found
            return last(names)

        return value

    def visit_UnaryOp(self, node: ast.UnaryOp) -> _Node:
        operand, operate = self.visit(node.operand), self._operator(node, node.op, _SIGNS)
        if operate is operator.not_:
            return lambda names: not operand(names)
        return lambda names: operate(_number(operand(names)))

    def visit_Compare(self, node: ast.Compare) -> _Node:
        first = self.visit(node.left)
        others = [
            (self._operator(node, operation, _COMPARISONS), self.visit(operand))
            for operation, operand in zip(node.ops, node.comparators)  # noqa: B905 -- of 3.10
        ]

        def value(names: Names) -> bool:
            left = first(names)
            for compare, operand in others:
                right = operand(names)
                if not compare(left, right):
                    return False
                left = right
            return True

        return value

    def visit_BinOp(self, node: ast.BinOp) -> _Node:
        """Evaluate left to right without recursion: a sum of a thousand terms is a thousand levels
        deep."""
        others: list[tuple[Callable[..., Any], _Node]] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp):
            operate = self._operator(left, left.op, _ARITHMETIC)
            others.append((operate, self.visit(left.right)))
            left = left.left
        first = self.visit(left)
        others.reverse()

        def value(names: Names) -> Any:
            result = first(names)
            for operate, operand in others:
                result = _operated(operate, result, operand(names))
            return result

        return value

    def _operator(
        self, node: ast.AST, operation: ast.AST, known: Mapping[Any, Callable[..., Any]]
    ) -> Callable[..., Any]:
        if type(operation) not in known:
            self.generic_visit(node)
        return known[type(operation)]


def _number(value: Any) -> Any:
    if not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is no number")
    return value


def _operated(operate: Callable[[Any, Any], Any], left: Any, right: Any) -> Any:
    if operate is operator.mul and isinstance(left, str) and isinstance(right, int):
        if len(left) * right > LONGEST_TEXT:
            raise ValueError(f"a text of over {LONGEST_TEXT:,} characters")
    elif not (operate is operator.add and isinstance(left, str) and isinstance(right, str)):
        _number(left)
        _number(right)
    return bounded(operate(left, right))


def bounded(value: Any) -> Any:
    """Return the value; raises ValueError if it is not finite or exceeds the bounds."""
    if isinstance(value, str):
        if len(value) > LONGEST_TEXT:
            raise ValueError(f"a text of over {LONGEST_TEXT:,} characters")
    elif isinstance(value, (int, float)) and not (isfinite(value) and abs(value) <= LARGEST):
        raise ValueError("a number that is too large, or none")
    return value
