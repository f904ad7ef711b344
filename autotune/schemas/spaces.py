"""Search spaces and scaling studies in requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from autotune.schemas import notation
from autotune.schemas.choices import ScalingKind
from autotune.schemas.shapes import SettingValue, StrategyShape, table_fields
from autotune.schemas.wire import MOST_VALUES, Label, Positive, Wire
from search_spaces import dimensions


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


class ReadySpace(Wire):
    """Base of a space."""

    preset: Label | None = None
    """A built-in space, such as `table-v`."""


def _several_values(dimension: dimensions.Dimension) -> tuple[Any, Any]:
    kind: Any = Switch if dimension.is_switch else Dimension
    unsaid = (lambda choice: choice is None) if dimension.of_experts else None
    return kind | None, Field(None, description=dimension.sentence, exclude_if=unsaid)


class SpaceSpec(table_fields(_several_values, after=ReadySpace), ReadySpace):  # type: ignore[misc]
    """A search space. Fields override the values of the preset, if one is named.

    A dimension is one value (`4`), a list (`[1, 2, 4]`), a range (`{"minimum": 4, "maximum": 20,
    "step": 4}`), `"auto"`, or a text of these (`"4..20 step 4"`). Where neither the ready space nor
    the request says anything, `tensor_parallel` to `num_nodes` are automatic, `precision` is what
    the machine's GPUs compute best with, and the others have the default of a strategy, or are
    searched where they trade time for memory and there is room.
    """

    if TYPE_CHECKING:  # the table's fields, which a type checker does not see

        def __init__(self, **values: Any) -> None: ...

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


MOST_STUDIED = 4
MOST_WIDTHS = 50


class StudySpec(Wire):
    """A scaling study, instead of a search: each strategy is measured on each number of nodes, at
    its own accumulation."""

    kinds: list[ScalingKind] = Field(["strong", "weak"], min_length=1, max_length=2)
    """`strong`: the same global batch on all nodes; `weak`: a batch in proportion to the nodes."""
    strategies: list[StrategyShape] = Field(default_factory=list, max_length=MOST_STUDIED)
    """Layouts, each with the global batch for strong scaling, which is also that of weak scaling on
    the strategy's own nodes."""
    like: Positive | None = None
    """Campaign whose recommended strategy is used if no `strategies` are given."""
    nodes: list[Positive] = Field(default_factory=list, max_length=MOST_WIDTHS)
    """Numbers of nodes; default: halves and doubles of each strategy's own, within the campaign's
    `nodes`."""


class StudiedStrategy(Wire):
    """A planned trial of a scaling study."""

    strategy: StrategyShape
    """The layout on a number of nodes, with the accumulation for its batch."""
    gpus: int
    """GPUs of these nodes."""
    global_batch_size: int
    """Samples of one optimizer step."""
    iteration_time_s: float
    """Predicted time of an optimizer step, s."""
    memory_gib: float
    """Predicted peak memory of the fullest GPU, GiB."""
    fits: bool
    """Whether it is predicted to fit."""
    node_hours: float
    """Predicted node-hours of its trial."""


class StudyPlan(Wire):
    """Trials of a scaling study, fewest nodes first."""

    trials: list[StudiedStrategy]
    """Its trials, in their order."""
    omitted: list[str]
    """What cannot be measured, and why, one sentence each."""
