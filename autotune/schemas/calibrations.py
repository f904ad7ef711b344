"""The cost model fitted to a machine and software stack: its observations and constants."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from autotune.schemas.wire import MOST_GIB, Wire
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

Seconds = Annotated[float, Field(ge=1e-6, le=1e7)]
Gibibytes = Annotated[float, Field(ge=1e-6, le=MOST_GIB)]


class ObservationShape(Wire):
    """One strategy as it ran, or failed to."""

    model: Transformer
    """The model in full."""
    strategy: Strategy
    """The strategy."""
    iteration_time_s: Seconds | None = None
    """Time of an optimizer step, s; null where it was not timed."""
    peak_memory_gib: Gibibytes | None = None
    """Peak memory of the fullest GPU, GiB; null where it is not known."""
    peak_allocated_gib: Gibibytes | None = None
    """What torch's allocator gave out of that peak, GiB; null where it is not known."""
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
