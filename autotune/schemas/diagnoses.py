"""Why a run is slow: the answer to its log."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from autotune.schemas.predictions import LayoutChange, Prediction
from autotune.schemas.wire import Wire
from search_spaces.strategy import Strategy

Verdict = Literal["healthy", "slow", "too short", "unknown"]


class RunFigures(Wire):
    """What ran, after the warm-up."""

    iterations: int
    """Reports on iterations that count."""
    warm_up: int
    """Reports that were left out at the beginning."""
    iteration_time_s: float
    """Median time of an iteration, s."""
    iteration_time_low_s: float
    """10th percentile, s."""
    iteration_time_high_s: float
    """90th percentile, s."""
    global_batch_size: int | None = None
    """Samples of an iteration that were really trained."""
    tokens_per_s_per_gpu: float | None = None
    """Tokens per second and GPU."""
    model_tflops_per_gpu: float | None = None
    """Model FLOPs of each GPU, TFLOP/s."""
    mfu: float | None = None
    """Model FLOPs over the peak, 0 to 1."""
    hfu: float | None = None
    """Hardware FLOPs over the peak, 0 to 1."""
    printed_tflops_per_gpu: float | None = None
    """What the log prints, TFLOP/s."""
    printed_sentence: str = ""
    """How the printed figure relates to ours; empty without one."""
    peak_memory_gib: float | None = None
    """Largest peak that the log prints, GiB."""


class SlowCause(Wire):
    """A reason why a run is slower than it could be."""

    name: str
    """Name of the cause."""
    sentence: str
    """The cause, and what to do."""
    evidence: str
    """The line or figure of the log that shows it."""
    worth: float | None = None
    """Share of an iteration's time that it costs, 0 to 1; null if unknown."""


class Diagnosis(Wire):
    """What a log shows: what ran, what was to be expected, and the gap by cause."""

    source: str
    """Name of the log."""
    trainer: str
    """Whose log it is."""
    verdict: Verdict
    """Whether the run is as fast as its layout can be expected to be."""
    sentence: str
    """The answer in words."""
    runs: int = 1
    """Runs in the log; the answer is about the last one."""
    model: str = ""
    """Name of the model; empty if it is not known."""
    machine: str = ""
    """Name of the machine; empty if it is not known."""
    gpus: int | None = None
    """GPUs of the run; null if not known."""
    layout: str = ""
    """The layout in short, as far as it was read."""
    strategy: Strategy | None = None
    """The layout in full; null if something is missing."""
    missing: list[str] = Field(default_factory=list)
    """What has to be stated for a prediction: `model`, `machine`, `nodes`, `baseline`."""
    assumed: list[str] = Field(default_factory=list)
    """What the log does not say, and what is taken for it."""
    is_adapted: bool = False
    """Whether adapters (LoRA) are trained, which are not predicted."""
    run: RunFigures
    """What ran."""
    expected: Prediction | None = None
    """What this layout is predicted to do on this machine."""
    slower: float | None = None
    """Measured time over the predicted one."""
    causes: list[SlowCause] = Field(default_factory=list)
    """Reasons, the most costly first."""
    not_shown: list[str] = Field(default_factory=list)
    """What the log does not show and would be worth looking at."""
    faster: list[LayoutChange] = Field(default_factory=list)
    """The layouts with the largest predicted gain."""
    command: str = ""
    """The command of a campaign with this layout as its baseline; empty if something is missing."""
