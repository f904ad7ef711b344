"""What may be tried, as users write it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from autotune.schemas import notation
from autotune.schemas.wire import Positive, Wire
from search_spaces.dimension import Scalar


class Range(Wire):
    """All values from `minimum` to `maximum` in steps of `step`."""

    minimum: Positive
    maximum: Positive
    step: Positive = 1


Dimension = Annotated[
    Literal["auto"] | Range | list[Scalar] | Scalar, BeforeValidator(notation.dimension)
]
"""A dimension is fixed (`4`), a list (`[1, 2, 4]`), a range, or `"auto"`; or a text of these, as
`autotune.schemas.notation` reads it."""

Switch = Annotated[
    Literal["auto"] | Range | list[Scalar] | Scalar, BeforeValidator(notation.switch)
]
"""A dimension that is on or off."""


class BatchBounds(Wire):
    """Bounds of the global batch size in samples; equal ones fix it, none leave it free."""

    minimum: Positive | None = None
    maximum: Positive | None = None


BatchChoice = Annotated[
    Positive | BatchBounds,
    BeforeValidator(notation.global_batch, json_schema_input_type=int | BatchBounds | str),
]


class SpaceSpec(Wire):
    """What may be tried. Starts from a ready space where one is named; each field overrides it."""

    preset: str | None = Field(None, description='a ready space of the catalog, such as "table-v"')
    tensor_parallel: Dimension | None = None
    pipeline_parallel: Dimension | None = None
    micro_batch_size: Dimension | None = None
    gradient_accumulation_steps: Dimension | None = None
    zero_stage: Dimension | None = None
    num_nodes: Dimension | None = None
    activation_checkpointing: Dimension | None = None
    sequence_parallel: Switch | None = None
    flash_attention: Switch | None = None
    virtual_stages: Dimension | None = None
    precision: Dimension | None = None
    global_batch_size: BatchChoice | None = None
