"""Trials as the search reads them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal

from autotune.calibration import Observation
from autotune.schemas.choices import TrialState
from autotune.schemas.trials import Trial
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

SearchState = Literal["running", "ok", "failed", "refused"]
"""`refused`: never started, so that nothing is known of it; it is not tried again."""


UNINFORMATIVE = frozenset(
    {TrialState.CANCELLED, TrialState.LOST, TrialState.NODE_FAIL, TrialState.PREEMPTED}
)
"""Ends that say nothing about the strategy: it may be tried again."""

ATTEMPTS = 3
"""Trials of a baseline or of a confirmation that may be lost before it is given up."""


def may_be_tried_again(same: Sequence[Trial]) -> bool:
    """Return whether the trials of one strategy for one purpose were all inconclusive, and fewer
    than ATTEMPTS were started; trials withdrawn from a queue do not count."""
    started = sum(not trial.withdrawn for trial in same)
    return all(trial.state in UNINFORMATIVE for trial in same) and started < ATTEMPTS


@dataclass(frozen=True, kw_only=True)
class SearchTrial:
    """One trial, or all trials of one strategy after `merged`.

    Attributes:
        iteration_time_s: of the strategy at its own GAS; given if `state` is ok.
        measured: whether that time was measured at its own GAS, not derived from others.
        out_of_memory: whether a failed trial ran out of memory.
        peak_memory_gib: of the fullest rank, if measured.
        cause: message of another failure; "" if unknown. Failures of one kind have equal `cause_of`
            it.
        stands_for: nodes of the strategy for which this one ran as a stand-in; None if it ran for
            itself.
        num_layers: layers of the model that ran, if fewer than the full model's: the pipeline is
            then shorter, and the nodes are fewer, than those of the strategy that it stands for.

    Raises:
        ValueError: an ok trial without a finite, positive time.
    """

    strategy: Strategy
    state: SearchState
    iteration_time_s: float | None = None
    measured: bool = False
    out_of_memory: bool = False
    peak_memory_gib: float | None = None
    cause: str = ""
    stands_for: int | None = None
    num_layers: int | None = None

    @property
    def full(self) -> Strategy:
        """Return the strategy that it is about: the one it stands for, else the one that ran."""
        strategy, nodes = self.strategy, self.stands_for or self.strategy.num_nodes
        stages = strategy.pipeline_parallel
        if self.num_layers is not None:
            stages = stages * nodes // strategy.num_nodes
        return replace(strategy, num_nodes=nodes, pipeline_parallel=stages)

    def __post_init__(self) -> None:
        seconds = self.iteration_time_s
        measured = seconds is not None and math.isfinite(seconds) and seconds > 0
        if self.state == "ok" and not measured:
            raise ValueError(f"an ok trial needs a positive iteration time, not {seconds!r}")

    def run(self, transformer: Transformer) -> Observation:
        """Return what ran, without the result.

        Args:
            transformer: with all layers.
        """
        return Observation(
            transformer=transformer.with_layers(self.num_layers), strategy=self.strategy
        )

    def observation(self, transformer: Transformer) -> Observation | None:
        """Return the observation for the calibration; None if it says nothing about time and
        memory.

        Args:
            transformer: with all layers.
        """
        if self.state == "ok":
            return replace(
                self.run(transformer),
                iteration_time_s=self.iteration_time_s,
                peak_memory_gib=self.peak_memory_gib,
                fitted=True,
            )
        if self.state == "failed" and self.out_of_memory:
            return replace(self.run(transformer), fitted=False)
        return None


def ended_of(trials: Iterable[Trial]) -> list[Trial]:
    return [trial for trial in trials if trial.state is not TrialState.PENDING]


def search_trials(trials: Sequence[Trial]) -> list[SearchTrial]:
    """Return the trials as the proposer reads them, without inconclusive ones and knobs'."""
    return [
        replace(unfinished(trial), **_end(trial))
        for trial in trials
        if trial.state not in UNINFORMATIVE and trial.purpose != "knob"
    ]


def unfinished(trial: Trial) -> SearchTrial:
    """Return a trial as the proposer reads it, without its result."""
    return SearchTrial(
        strategy=trial.strategy,
        state="running",
        stands_for=trial.stands_for_nodes,
        num_layers=trial.num_layers,
    )


def _end(trial: Trial) -> dict[str, Any]:
    if trial.state is TrialState.PENDING:
        return {"state": "running"}
    if trial.state is TrialState.REFUSED:
        return {"state": "refused"}
    if trial.metrics is None:
        oom = trial.state is TrialState.OOM
        cause = "" if oom else trial.error or trial.state.value
        return {"state": "failed", "out_of_memory": oom, "cause": cause}
    peak = max(trial.peak_memory_gib_by_rank, default=None)
    return {
        "state": "ok",
        "iteration_time_s": trial.metrics.iteration_time_s,
        "measured": trial.metrics.measured,
        "peak_memory_gib": peak,
    }


def merged(trials: Iterable[SearchTrial]) -> list[SearchTrial]:
    """Return one trial for each strategy and stand-in, in an order that does not depend on the
    input's.

    A strategy with an ok trial is ok, with the median time of those measured at its own GAS, else
    of all; this is the recommendation's rule. Otherwise it is running if any of its trials runs,
    else failed, or refused if none started.
    """
    alike: dict[tuple[Strategy, int, int], list[SearchTrial]] = {}
    for trial in trials:
        ran_for = (trial.strategy, trial.stands_for or 0, trial.num_layers or 0)
        alike.setdefault(ran_for, []).append(trial)
    return [_one(alike[key]) for key in sorted(alike)]


def _one(same: Sequence[SearchTrial]) -> SearchTrial:
    ok = [o for o in same if o.state == "ok"]
    if ok:
        peaks = [o.peak_memory_gib for o in ok if o.peak_memory_gib is not None]
        counted = [o for o in ok if o.measured] or ok
        return replace(
            counted[0],
            iteration_time_s=median(float(o.iteration_time_s or 0.0) for o in counted),
            peak_memory_gib=max(peaks, default=None),
        )
    states: tuple[SearchState, ...] = ("running", "failed", "refused")
    state = next(state for state in states if any(o.state == state for o in same))
    out_of_memory = state == "failed" and any(o.out_of_memory for o in same)
    causes = sorted({o.cause for o in same if o.state == state and not o.out_of_memory} - {""})
    return replace(
        same[0],
        state=state,
        out_of_memory=out_of_memory,
        cause="" if out_of_memory else next(iter(causes), ""),
    )
