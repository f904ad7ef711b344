"""A strategy and a space have a field for each dimension, and texts can be stored."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter
from pydantic_core import PydanticCustomError

from autotune.schemas.requests import Budget
from autotune.schemas.spaces import BatchBounds, Range, SpaceSpec
from autotune.schemas.validation import validated
from search_spaces.dimensions import DIMENSIONS, TABLE
from search_spaces.errors import InvalidInputs
from search_spaces.fields import checked, fields_of, storable
from search_spaces.strategy import Strategy

ONE: dict[str, Any] = {d.name: 1 for d in TABLE if d.default is None}


def test_there_is_a_field_for_each_dimension() -> None:
    assert tuple(fields_of(Strategy)) == (*DIMENSIONS, "settings")
    assert set(SpaceSpec.model_fields) == {*DIMENSIONS, "preset", "settings", "global_batch_size"}
    for shape in (Strategy, SpaceSpec):
        properties = TypeAdapter(shape).json_schema()["properties"]
        assert all(properties[d.name]["description"] == d.sentence for d in TABLE)


@pytest.mark.parametrize(("name", "value"), [("zero_stage", 4), ("precision", "int8")])
def test_a_value_that_a_dimension_cannot_have_is_refused(name: str, value: object) -> None:
    with pytest.raises(InvalidInputs, match=name):
        checked(Strategy, ONE | {name: value})


def test_settings_name_no_dimension_of_all_trainers() -> None:
    with pytest.raises(InvalidInputs, match="not dimensions of a trainer's own"):
        checked(Strategy, {**ONE, "settings": {"virtual_stages": 2}})


def test_a_text_that_no_database_stores_is_refused() -> None:
    for letter in map(chr, (0, 0xD800, 0xDFFF)):
        with pytest.raises(PydanticCustomError, match="half of a pair of surrogates"):
            storable(f"a{letter}b")
    whole = "a" + "".join(map(chr, (1, 0xD7FF, 0xE000, 0x1F600)))
    assert storable(whole) == whole


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("auto", "auto"),
        ("4", 4),
        (" 1, 2,4", [1, 2, 4]),
        ("full, none", ["full", "none"]),
        ("bf16", "bf16"),
        ("4:20", Range(minimum=4, maximum=20)),
        ("4..20", Range(minimum=4, maximum=20)),
        ("4:20:4", Range(minimum=4, maximum=20, step=4)),
        ("4..20 step 4", Range(minimum=4, maximum=20, step=4)),
        ("yes", "yes"),
        (4, 4),
        ([1, 2], [1, 2]),
    ],
)
def test_dimensions(text: object, choice: object) -> None:
    read = validated(SpaceSpec, {"tensor_parallel": text}).tensor_parallel
    assert read == choice
    assert type(read) is type(choice)


@pytest.mark.parametrize(
    ("text", "choice"),
    [("on", True), ("true", True), ("Off", False), ("on,off", [True, False]), ("auto", "auto")],
)
def test_switches(text: str, choice: object) -> None:
    assert validated(SpaceSpec, {"flash_attention": text}).flash_attention == choice


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("640", 640),
        ("512:1024", BatchBounds(minimum=512, maximum=1024)),
        ("512..1024", BatchBounds(minimum=512, maximum=1024)),
        ("512..", BatchBounds(minimum=512)),
        (":1024", BatchBounds(maximum=1024)),
    ],
)
def test_global_batches(text: str, choice: object) -> None:
    assert validated(SpaceSpec, {"global_batch_size": text}).global_batch_size == choice


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("300B", 3e11),
        ("300e9", 3e11),
        ("1.4 T", 1.4e12),
        ("17.3m", 1.73e7),
        ("1,000", 1e3),
        (5, 5.0),
    ],
)
def test_tokens(text: object, tokens: float) -> None:
    assert validated(Budget, {"train_tokens": text}).train_tokens == pytest.approx(tokens)


@pytest.mark.parametrize(
    ("wire_model", "field", "text"),
    [
        *((SpaceSpec, "tensor_parallel", text) for text in ("1,,2", "4:x", "1:2:3:4", ":4", "8:2")),
        *((SpaceSpec, "tensor_parallel", text) for text in ("4:20:0", "0..4", "4..20 by 2")),
        *((SpaceSpec, "flash_attention", text) for text in ("4", "on,maybe", "1..2")),
        *((SpaceSpec, "global_batch_size", text) for text in (":", "big", "1:2:3", "0:4", "8:2")),
        *((Budget, "train_tokens", text) for text in ("many", "300X", "", "0B", "-1B")),
    ],
)
def test_what_is_none_is_refused_with_what_would_do(wire_model: Any, field: str, text: str) -> None:
    with pytest.raises(InvalidInputs) as refused:
        validated(wire_model, {field: text})
    (problem,) = refused.value.problems
    assert problem.field == field
    assert problem.reason
    assert problem.valid
