"""The table of dimensions, and what is held equal to it."""

from __future__ import annotations

from dataclasses import MISSING, fields

from search_spaces.dimensions import DIMENSIONS, TABLE
from search_spaces.strategy import Strategy


def test_a_strategy_has_a_field_for_each_dimension() -> None:
    """`Strategy` is typed, and so written out: nothing else may drift from the table."""
    defaults = {
        field.name: None if field.default is MISSING else field.default
        for field in fields(Strategy)
        if field.name != "settings"
    }
    assert defaults == {dimension.name: dimension.default for dimension in TABLE}
    assert tuple(defaults) == DIMENSIONS


def test_a_value_belongs_to_its_dimension() -> None:
    for dimension in TABLE:
        for value in (dimension.neutral, dimension.default):
            assert value is None or value in (dimension.values or (1,))


def test_nothing_stands_for_two_dimensions() -> None:
    for words in (
        [dimension.short for dimension in TABLE],
        [dimension.option for dimension in TABLE],
        [key for dimension in TABLE for key in dimension.keys],
        [option for dimension in TABLE for option in dimension.megatron if option],
        [column for dimension in TABLE for column in dimension.columns],
    ):
        assert len(words) == len(set(words))
