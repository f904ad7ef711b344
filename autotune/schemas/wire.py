"""What all wire models have in common, and the answer to a request that is refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

TrialPurpose = Literal["search", "confirmation", "baseline", "study"]
"""Why a trial is run: to search, to measure one of the best once more, or to have the layout
measured that the result is told against, which counts as a trial of the search; or for a scaling
study, which searches nothing."""

AT_OWN_ACCUMULATION: frozenset[TrialPurpose] = frozenset({"confirmation", "study"})
"""Purposes of trials that measure a strategy at its own GAS alone."""

Positive = Annotated[int, Field(gt=0)]


def storable(text: str) -> str:
    """Return the text; raises PydanticCustomError for one that no database keeps."""
    whole = "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)
    if not whole:
        reason = "it has a NUL character, or half of a pair of surrogates, which no database keeps"
        raise PydanticCustomError("not_storable", "{reason}", {"reason": reason})
    return text


Label = Annotated[str, Field(max_length=200), AfterValidator(storable)]
"""A name, or the value of a dimension that is no number."""
Description = Annotated[str, Field(max_length=2000), AfterValidator(storable)]
MOST_VALUES = 1000
"""In a list of a dimension's values."""


class Wire(BaseModel):
    """Base of all: unknown fields are refused, not dropped, and so are infinity and NaN."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class FieldProblem(Wire):
    """One field of a request that cannot be used: its value, why, and what would do."""

    field: str
    """Name of the field as the request has it, such as `budget.max_trials`."""
    value: Any = None
    """What was given; cut short where it is long."""
    reason: str
    """Why it cannot be used."""
    valid: str = ""
    """What would do; empty where there is nothing to say."""


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
    """Each field that is refused; empty where no field is to blame."""
    request_id: str = ""
    """By which the service's log knows the request."""
