"""Earlier runs that a site imports."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from autotune.schemas.requests import AdapterChoice
from autotune.schemas.shapes import MachineChoice, ModelChoice
from autotune.schemas.wire import MOST_GIB, Wire
from search_spaces.fields import Label
from search_spaces.strategy import Strategy

MOST_RUNS = 1000
LONGEST_ITERATION_S = 1e5


class ImportedRun(Wire):
    """A run that ended before it was imported."""

    strategy: Strategy
    """Its layout, with the batch that ran."""
    state: Literal["ok", "oom"] = "ok"
    """Whether it ran, or ran out of memory."""
    iteration_time_s: Annotated[float, Field(gt=0, le=LONGEST_ITERATION_S)] | None = None
    """Median time of an optimizer step, s; null only if it ran out of memory."""
    peak_memory_gib: Annotated[float, Field(gt=0, le=MOST_GIB)] | None = None
    """Peak memory of the fullest GPU as torch's allocator reserved it, GiB; null if not known."""
    source: Annotated[Label, Field(min_length=1)]
    """Where it was read: the name of a file, and the row."""
    finished_at: AwareDatetime
    """When it ended."""


class ImportRequest(Wire):
    """Earlier runs of one model on one machine with one trainer."""

    name: Label = ""
    """Display name; may be empty."""
    model: ModelChoice
    """The model, as in a campaign."""
    machine: MachineChoice
    """The machine, as in a campaign."""
    adapter: AdapterChoice = ""
    """The trainer, as in a campaign; empty: the bundled one."""
    private: bool = False
    """Hide them from other users of a shared service, except admins."""
    runs: Annotated[list[ImportedRun], Field(min_length=1, max_length=MOST_RUNS)]
    """The runs."""
