"""A strategy and a space have a field for each dimension, and texts can be stored."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from autotune.schemas.shapes import StrategyShape
from autotune.schemas.spaces import SpaceSpec
from autotune.schemas.wire import storable
from search_spaces.dimensions import DIMENSIONS, TABLE

ONE: dict[str, Any] = {d.name: 1 for d in TABLE if d.default is None}


def test_there_is_a_field_for_each_dimension() -> None:
    assert tuple(StrategyShape.model_fields) == (*DIMENSIONS, "settings")
    assert set(SpaceSpec.model_fields) == {*DIMENSIONS, "preset", "settings", "global_batch_size"}
    for shape in (StrategyShape, SpaceSpec):
        said = shape.model_json_schema()["properties"]
        assert all(said[d.name]["description"] == d.sentence for d in TABLE)


@pytest.mark.parametrize(("name", "value"), [("zero_stage", 4), ("precision", "int8")])
def test_a_value_that_a_dimension_cannot_have_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValidationError, match=name):
        StrategyShape(**ONE | {name: value})


def test_what_was_a_trainer_s_own_is_the_dimension_of_that_name() -> None:
    """An adapter may have had a dimension of its own before every trainer had it."""
    kept = ONE | {"settings": {"virtual_stages": 2, "overlap": True}}
    assert StrategyShape(**kept) == StrategyShape(
        **ONE, virtual_stages=2, settings={"overlap": True}
    )
    assert SpaceSpec(settings={"virtual_stages": [1, 2]}) == SpaceSpec(virtual_stages=[1, 2])
    with pytest.raises(ValidationError, match="not dimensions of a trainer's own"):
        StrategyShape(**ONE, virtual_stages=1, settings={"virtual_stages": 2})


def test_a_text_that_no_database_stores_is_refused() -> None:
    for letter in map(chr, (0, 0xD800, 0xDFFF)):
        with pytest.raises(PydanticCustomError, match="half of a pair of surrogates"):
            storable(f"a{letter}b")
    whole = "a" + "".join(map(chr, (1, 0xD7FF, 0xE000, 0x1F600)))
    assert storable(whole) == whole
