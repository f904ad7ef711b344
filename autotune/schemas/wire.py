"""Base of all wire models, and the response to a refused request."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

TrialPurpose = Literal["search", "confirmation", "baseline", "imported", "knob"]
"""Purpose of a trial: `search`, `confirmation` (one of the best measured again, only at its own
GAS), `baseline` (counts as a trial of the search), `imported` (a run that nothing here started), or
`knob` (a start of the best layout with a knob, or without one for comparison)."""

MOST_COUNTED = 10**9
MOST_TOKENS = 10**18
MOST_NODE_HOURS = 10**12
MOST_GIB = 10**6
"""Beyond these a number is a slip, and arithmetic with it overflows."""

Positive = Annotated[int, Field(gt=0, le=MOST_COUNTED)]
NodeHours = Annotated[float, Field(gt=0, le=MOST_NODE_HOURS)]
Headroom = Annotated[float, Field(ge=0, le=MOST_GIB)]

MOST_VALUES = 1000
"""In a list of a dimension's values."""


class Wire(BaseModel):
    """Base of all models: unknown fields, infinity and NaN are refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class FieldProblem(Wire):
    """An invalid field of a request: its value, the reason, and valid values."""

    field: str
    """Name of the field in the request, such as `budget.max_trials`."""
    value: Any = None
    """The given value, truncated if long."""
    reason: str
    """Why it is invalid."""
    valid: str = ""
    """Valid values; may be empty."""


class Problem(Wire):
    """RFC 9457 `application/problem+json`."""

    type: str = "about:blank"
    """Always `about:blank`: the status says what kind of problem it is."""
    title: str
    """The status in words."""
    status: int
    """HTTP status of the answer."""
    detail: str
    """The whole problem in one line."""
    errors: list[FieldProblem] = Field(default_factory=list)
    """The refused fields; empty if no field is to blame."""
    request_id: str = ""
    """Id of the request in the service's log."""
