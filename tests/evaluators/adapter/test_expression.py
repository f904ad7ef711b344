from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.adapter.expression import (
    DEEPEST,
    FUNCTIONS,
    LARGEST,
    LONGEST,
    LONGEST_TEXT,
    ExpressionFault,
    Value,
    parse,
)
from evaluators.adapter.template import template

NAMES: dict[str, Value] = {
    "tensor_parallel": 4,
    "share": 0.25,
    "precision": "bf16",
    "flag": True,
    "nothing": None,
}

_leaves = st.one_of(
    st.integers(0, 10**6).map(str),
    st.floats(0, 1e6, allow_nan=False).map(repr),
    st.sampled_from(["True", "False", "None", "'bf16'", '"x y"', *NAMES]),
)


def _branches(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    operators = ["+", "-", "*", "/", "//", "%", "<", "<=", "==", "!=", ">", ">=", "and", "or"]
    return st.one_of(
        st.tuples(inner, st.sampled_from(operators), inner).map(" ".join),
        inner.map("({})".format),
        inner.map("not {}".format),
        inner.map("-{}".format),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(
            lambda t: f"{t[0]}({t[1]}, {t[2]})"
        ),
    )


EXPRESSIONS = st.recursive(_leaves, _branches, max_leaves=12)


def _as_python_has_it(text: str) -> Any:
    return eval(text, {"__builtins__": {}, **FUNCTIONS}, dict(NAMES))


@settings(max_examples=200)
@given(text=EXPRESSIONS)
def test_expressions_mean_what_python_means(text: str) -> None:
    try:
        value = parse(text).value(NAMES)
    except ExpressionFault:
        # Refused, where Python refuses too, or where it has texts and numbers that are no figures.
        try:
            expected = _as_python_has_it(text)
        except (TypeError, ValueError, ZeroDivisionError, OverflowError, SyntaxError):
            return
        sizes = isinstance(expected, int | float) and abs(expected) > LARGEST
        assert sizes or _handles_texts(text)
    else:
        assert repr(value) == repr(_as_python_has_it(text))
        if isinstance(value, str):
            assert len(value) <= LONGEST_TEXT
        elif value is not None:
            assert abs(value) <= LARGEST


def _handles_texts(text: str) -> bool:
    """Return whether Python may repeat or format a text where an expression must not."""
    return any(sign in text for sign in ("'", '"', "precision"))


@settings(max_examples=150)
@given(text=st.text(alphabet="()[]{}.,'\"+-*/%<>=! 0129eabif_not", max_size=60))
def test_nothing_but_a_fault_comes_of_nonsense(text: str) -> None:
    with suppress(ExpressionFault):
        value = parse(text).value({})
        assert value is None or isinstance(value, int | float | str)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("__import__('os')", "calls __import__; only abs"),
        ("tensor_parallel.bit_length()", "calls tensor_parallel.bit_length; only abs"),
        ("tensor_parallel.real", "has 'tensor_parallel.real', which means nothing"),
        ("1 + [1]", "has '[1]', which means nothing"),
        ("1 + 10 ** 9", "has '10 ** 9', which means nothing"),
        ("(share := 1)", "which means nothing"),
        ("max(*'ab')", """has "*'ab'", which means nothing"""),
        ("round(1.5, digits=1)", "which means nothing"),
        ("~1", "has '~1', which means nothing"),
        ("1 in 'a'", "`in` takes two texts"),
        ("1 is 1", "which means nothing"),
        ("replace('a' * 9000, '', 'bc')", "a text of over 10,000 characters"),
        ("b'a'", "which means nothing"),
        ("1j", "which means nothing"),
        ("1e400", "has a number above"),
        ("1 if 2", "is no expression: expected 'else' after 'if' expression"),
        ("'a' * 1000000", "a text of over 10,000 characters"),
        ("2 * 'a'", "'a' is no number"),
        ("1 / (tensor_parallel - 4)", "divides by zero"),
        ("pp + 1", "pp has no value"),
        ("(" * 900 + "1" + ")" * 900, "is no expression: too many nested parentheses"),
        ("-" * (LONGEST - 1) + "1", "nested more than"),
        ("not " * (DEEPEST + 1) + "1", "nested more than"),
        ("1+" * LONGEST + "1", "over 2,000 characters"),
        ("round(123456, -100000000)", "-30 to 30 digits"),
        ("round(1.5, 10000000)", "-30 to 30 digits"),
        ("1 2", "is no expression: invalid syntax at '2'"),
        ("1) + (2", "is no expression: unmatched ')' at ') + (2'"),
        ("", "is no expression"),
    ],
)
def test_what_is_out_of_bounds_is_refused_in_a_sentence(text: str, reason: str) -> None:
    with pytest.raises(ExpressionFault, match=re.escape(reason)):
        parse(text).value(NAMES)


def test_the_longest_chain_is_worked_out() -> None:
    assert parse("1" + "+1" * 999).value({}) == 1000
    assert parse("(" * DEEPEST + "1" + ")" * DEEPEST).value({}) == 1
    assert parse("1  # one\n+ 2\n").value({}) == 3
    assert parse("9" * 30).value({}) == int("9" * 30)
    with pytest.raises(ExpressionFault, match="too large"):
        parse("9" * 30 + " * 10").value({})


def test_texts_are_searched_and_replaced() -> None:
    assert parse("'moe' in 'a+moe' and 'moe' not in 'b'").value({}) is True
    assert parse("replace(precision, 'bf', 'fp')").value(NAMES) == "fp16"


def test_a_template_keeps_the_type_of_one_expression() -> None:
    assert template("{tensor_parallel * 2}").value(NAMES) == 8
    assert template("{flag}").value(NAMES) is True
    assert template("tp={tensor_parallel},{{{flag}}}").value(NAMES) == "tp=4,{true}"
    assert template("{'}' if flag else '{'}").value(NAMES) == "}"
    with pytest.raises(ExpressionFault, match="a brace"):
        template("{tensor_parallel")
