"""The cost model fitted to a machine and software stack: what it rests on and what it found."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from autotune.schemas.shapes import MachineShape, ModelShape, StrategyShape
from autotune.schemas.wire import Positive, Wire

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
CalibrationName = Annotated[str, Field(pattern=NAME)]
Seconds = Annotated[float, Field(gt=0)]
Gibibytes = Annotated[float, Field(gt=0)]
MOST_OBSERVATIONS = 1000
"""Fitting takes some seconds with so many, and eight times as long with twice as many."""

FORMER_ENERGY = "joules_per_token"


class ObservationShape(Wire):
    """One strategy as it ran, or failed to. `fitted`: whether memory sufficed, where that is known
    (a trial may end for another reason). `gpu_joules_per_token`: what the GPUs alone drew, which
    documents of earlier versions have as `joules_per_token`."""

    model: ModelShape
    strategy: StrategyShape
    iteration_time_s: Seconds | None = None
    peak_memory_gib: Gibibytes | None = None
    fitted: bool | None = None
    gpu_joules_per_token: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _renamed(cls, given: Any) -> Any:
        """Take the name of earlier versions, in which documents and rows are kept."""
        if not isinstance(given, Mapping) or FORMER_ENERGY not in given:
            return given
        others = {name: value for name, value in given.items() if name != FORMER_ENERGY}
        return {"gpu_joules_per_token": given[FORMER_ENERGY]} | others


class EarlierObservation(ObservationShape):
    """The same of an earlier campaign's trial, as a later one keeps it when it begins.

    `age_days` is the trial's age then; `versions` are of what it ran with, by package.
    """

    campaign_id: int
    versions: dict[str, str]
    age_days: float


class CalibrationDocument(Wire):
    """A calibration as it is exported and imported. All follows from its observations."""

    format: Literal["autotune-calibration-1"] = "autotune-calibration-1"
    machine: MachineShape
    software: Annotated[str, Field(max_length=500)] = ""
    simulated: bool = False
    observations: Annotated[
        list[ObservationShape], Field(min_length=1, max_length=MOST_OBSERVATIONS)
    ]


class CalibrationCreate(Wire):
    """Fit to the trials of campaigns, which ran on one machine; their models may differ."""

    name: CalibrationName
    campaigns: Annotated[list[Positive], Field(min_length=1, max_length=100)]
    software: Annotated[str, Field(max_length=500)] | None = Field(
        None, description="the stack they ran on; taken from the trials' versions if not given"
    )


class ConstantShape(Wire):
    """One constant before and after. Spreads are standard deviations of its logarithm."""

    name: str
    unit: str
    prior: float
    value: float
    prior_spread: float
    spread: float


class CalibrationSummary(Wire):
    """What a prediction rests on. `out_of_memory` counts observations that did not fit."""

    name: str
    machine: str
    software: str
    simulated: bool
    created_at: datetime | None = None
    observations: int
    timed: int
    out_of_memory: int
    models: list[str]


class CalibrationDetail(CalibrationSummary):
    """With its constants, those first that the observations say most about."""

    constants: list[ConstantShape]
