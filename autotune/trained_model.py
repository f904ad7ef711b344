"""Check of the trainer's parameter count against the requested model. Pure."""

from __future__ import annotations

from autotune.schemas.trials import TrialMetrics

AGREES = 0.05
"""Share by which two counts of one model may differ: padding, biases and positions are counted or
not."""


def agree(told: float, asked: int) -> bool:
    """Return whether a trainer's count agrees with the requested model's parameters."""
    return abs(told - asked) <= AGREES * asked


def another_model(figures: TrialMetrics | None) -> str:
    """Return in words that the trainer trained another model; empty if the counts agree or are
    unknown."""
    if figures is None or figures.trainer_parameters is None or figures.model_parameters is None:
        return ""
    told, asked = figures.trainer_parameters, figures.model_parameters
    if agree(told, asked):
        return ""
    return f"the trainer counts {told:,} parameters, and the model that was asked for has {asked:,}"
