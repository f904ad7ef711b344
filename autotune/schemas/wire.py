"""What all wire models have in common, and the answer to a request that is refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

EvaluatorName = Literal["simulated", "local", "slurm"]
Objective = Literal[
    "tokens_per_s", "tokens_per_s_per_gpu", "tokens_per_node_hour", "tokens_per_joule"
]
"""What a campaign makes as high as possible. The last two are the inverse of the node-hours and of
the energy for a token."""
TrialPurpose = Literal["search", "confirmation", "baseline"]
"""Why a trial is run: to search, to measure one of the best once more, or to have the layout
measured that the result is told against. A baseline counts as a trial of the search."""

Positive = Annotated[int, Field(gt=0)]


class Wire(BaseModel):
    """Base of all: unknown fields are refused, not dropped, and so are infinity and NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class FieldProblem(Wire):
    """One field of a request that cannot be used: its value, why, and what would do."""

    field: str
    value: Any = None
    reason: str
    valid: str = ""


class Problem(Wire):
    """RFC 9457 `application/problem+json`."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] = Field(default_factory=list)
