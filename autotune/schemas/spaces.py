"""Search spaces in requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, create_model

from autotune.schemas import notation
from autotune.schemas.wire import MOST_VALUES, Positive, Wire
from search_spaces import dimensions
from search_spaces.fields import Label
from search_spaces.strategy import SettingValue


class Range(Wire):
    """All values from `minimum` to `maximum` in steps of `step`."""

    minimum: Positive
    """The smallest value."""
    maximum: Positive
    """No value is larger."""
    step: Positive = 1
    """From one value to the next."""


Value = int | bool | Label
Values = Annotated[list[Value], Field(max_length=MOST_VALUES)]

Dimension = Annotated[Literal["auto"] | Range | Values | Value, BeforeValidator(notation.dimension)]
"""A dimension is fixed (`4`), a list (`[1, 2, 4]`), a range, or `"auto"`; or a text of these, as
`autotune.schemas.notation` reads it."""

Switch = Annotated[Literal["auto"] | Range | Values | Value, BeforeValidator(notation.switch)]
"""A dimension that is on or off."""


SettingChoice = Annotated[
    Annotated[list[SettingValue], Field(max_length=MOST_VALUES)] | SettingValue,
    BeforeValidator(notation.setting),
]
"""A dimension that only a trainer has; its adapter knows the valid values."""


class BatchBounds(Wire):
    """Bounds of the global batch size in samples; equal ones fix it, none leave it free."""

    minimum: Positive | None = None
    """The smallest batch, samples; null: no bound."""
    maximum: Positive | None = None
    """The largest batch, samples; null: no bound."""


BatchChoice = Annotated[
    Positive | BatchBounds,
    BeforeValidator(notation.global_batch, json_schema_input_type=Positive | BatchBounds | str),
]


def _several_values(dimension: dimensions.Dimension) -> tuple[Any, Any]:
    kind: Any = Switch if dimension.is_switch else Dimension
    is_absent = (lambda choice: choice is None) if dimension.of_experts else None
    return kind | None, Field(None, description=dimension.sentence, exclude_if=is_absent)


_FIELDS: Any = {dimension.name: _several_values(dimension) for dimension in dimensions.TABLE}


class SpaceSpec(create_model("Dimensions", __base__=Wire, **_FIELDS), Wire):  # type: ignore[misc]
    """A search space. Fields override the values of the preset, if one is named.

    A dimension is one value (`4`), a list (`[1, 2, 4]`), a range (`{"minimum": 4, "maximum": 20,
    "step": 4}`), `"auto"`, or a text of these (`"4..20 step 4"`). Where neither the ready space nor
    the request says anything, `tensor_parallel` to `num_nodes` are automatic, `precision` is what
    the machine's GPUs compute best with, and the others have the default of a strategy, or are
    searched where they trade time for memory and there is room.
    """

    if TYPE_CHECKING:  # the table's fields, which a type checker does not see

        def __init__(self, **values: Any) -> None: ...

    preset: Label | None = None
    """A built-in space, such as `table-v`, on which it is based."""
    settings: Annotated[
        dict[Label, SettingChoice],
        Field(max_length=50, exclude_if=lambda settings: not settings),
        BeforeValidator(notation.settings),
    ] = Field(default_factory=dict)
    """Values of dimensions that only the trainer has, by name: one value, a list, a text such as
    `"on,off"`, or `"auto"` for all values. Omitted dimensions are `"auto"`, or have their default
    if the trainer searches them only on demand. Also accepts a text:
    `"overlap=on bucket=50,100"`."""
    global_batch_size: BatchChoice | None = None
    """Samples of one optimizer step: one size, bounds, or a text of these (`"512..1024"`)."""
