"""The cost model fitted to a machine and software stack: its observations and constants."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from autotune.schemas.shapes import MachineShape, ModelShape, StrategyShape
from autotune.schemas.wire import MOST_GIB, Wire, storable

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
CalibrationName = Annotated[str, Field(pattern=NAME)]
Software = Annotated[str, Field(max_length=500), AfterValidator(storable)]
Seconds = Annotated[float, Field(ge=1e-6, le=1e7)]
Gibibytes = Annotated[float, Field(ge=1e-6, le=MOST_GIB)]
MOST_OBSERVATIONS = 1000
"""Fitting takes some seconds with so many, and eight times as long with twice as many."""


class ObservationShape(Wire):
    """One strategy as it ran, or failed to."""

    model: ModelShape
    """The model in full."""
    strategy: StrategyShape
    """The strategy."""
    iteration_time_s: Seconds | None = None
    """Time of an optimizer step, s; null where it was not timed."""
    peak_memory_gib: Gibibytes | None = None
    """Peak memory of the fullest GPU, GiB; null where it is not known."""
    fitted: bool | None = None
    """Whether it fit into memory; null if unknown, such as after another failure."""
    gpu_joules_per_token: Annotated[float, Field(ge=1e-9, le=1e9)] | None = None
    """Energy of the GPUs alone, J per token; null if not sampled."""


class EarlierObservation(ObservationShape):
    """An observation from an earlier campaign, stored with a later one."""

    campaign_id: int
    """The earlier campaign."""
    versions: dict[str, str]
    """Package versions of its environment."""
    age_days: float
    """Age of the trial when the later campaign began, days."""


class CalibrationDocument(Wire):
    """A calibration document for export and import. Its constants follow from the observations."""

    format: Literal["autotune-calibration-1"] = "autotune-calibration-1"
    """Version of this format."""
    machine: MachineShape
    """The machine in full."""
    software: Software = ""
    """Software stack of the observations, in words."""
    simulated: bool = False
    """Whether the observations are simulated."""
    observations: Annotated[
        list[ObservationShape], Field(min_length=1, max_length=MOST_OBSERVATIONS)
    ]
    """Observations to which the constants are fitted."""


class CalibrationCreate(Wire):
    """Fit to the trials of campaigns, which ran on one machine; their models may differ."""

    name: CalibrationName
    """Name of the new calibration; must be unused."""
    campaigns: Annotated[list[Annotated[int, Field(gt=0)]], Field(min_length=1, max_length=100)]
    """Campaigns to whose trials it is fitted."""
    software: Software | None = None
    """Software stack; null: taken from the trials' versions."""


class ConstantShape(Wire):
    """One constant of the cost model before and after.

    Spreads are standard deviations of its logarithm.
    """

    name: str
    """Name of the constant."""
    unit: str
    """Its unit."""
    prior: float
    """Its value before any observation."""
    value: float
    """Its value with the observations."""
    prior_spread: float
    """Spread before any observation."""
    spread: float
    """Spread with the observations."""


class CalibrationSummary(Wire):
    """The calibration used for a prediction."""

    name: str
    """Its name."""
    machine: str
    """Name of the machine."""
    software: str
    """Software stack of the observations, in words."""
    simulated: bool
    """Whether the observations are simulated."""
    created_at: datetime | None = None
    """When it was stored; null if it is not stored."""
    observations: int
    """Strategies that were observed."""
    timed: int
    """Observations with a time."""
    out_of_memory: int
    """Observations that did not fit."""
    models: list[str]
    """Names of the models that were observed."""


class CalibrationDetail(CalibrationSummary):
    """A calibration with its constants, those best determined by the observations first."""

    constants: list[ConstantShape]
    """The constants, those best determined by the observations first."""
