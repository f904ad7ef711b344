"""What the trials of campaigns say to a calibration."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.calibration.observation import Observation
from autotune.resolution import strategy_of
from autotune.schemas import Trial, TrialState
from search_spaces.transformer import Transformer


def observations_of(transformer: Transformer, trials: Sequence[Trial]) -> list[Observation]:
    """One of each trial that ran to its end, or out of memory; others say nothing of their
    strategy.

    A trial measures one layout at two accumulations. The one with most micro-batches is taken: it
    says most, and the peak of memory over both is its own.
    """
    found = (_observation(transformer, trial) for trial in trials)
    return [observation for observation in found if observation is not None]


def _observation(transformer: Transformer, trial: Trial) -> Observation | None:
    strategy = strategy_of(trial.strategy)
    if trial.state is TrialState.OOM:
        # What it had when it failed is not what it needs.
        return Observation(transformer=transformer, strategy=strategy, fitted=False)
    measured = [each for each in trial.accumulations if each.measured]
    if trial.state is not TrialState.OK or not measured:
        return None
    longest = max(measured, key=lambda each: each.gradient_accumulation_steps)
    return Observation(
        transformer=transformer,
        strategy=strategy.with_accumulation(longest.gradient_accumulation_steps),
        iteration_time_s=longest.iteration_time_s,
        peak_memory_gib=max(trial.peak_memory_gib_by_rank, default=0.0) or None,
        fitted=True,
    )
