"""What all wire models have in common."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

EvaluatorName = Literal["simulated", "local", "slurm"]
Objective = Literal["tokens_per_s", "tokens_per_s_per_gpu"]
Positive = Annotated[int, Field(gt=0)]
Scalar = int | bool | str


class Wire(BaseModel):
    """Base of all: unknown fields are refused, not dropped, and so are infinity and NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
