"""Whether a trial has trained the model that it was to train, as its trainer counts it. Pure."""

from __future__ import annotations

from autotune.schemas import TrialMetrics

AGREES = 0.05
"""Share by which two counts of one model may differ: padding, biases and positions are counted or
not."""


def agree(told: float, asked: int) -> bool:
    """Return whether what a trainer counts may be the parameters of the model asked for."""
    return abs(told - asked) <= AGREES * asked


def another_model(figures: TrialMetrics | None) -> str:
    """Return in words that the trainer counts another model than was asked for; empty where it
    does not, or tells nothing of it."""
    if figures is None or figures.trainer_parameters is None or figures.model_parameters is None:
        return ""
    told, asked = figures.trainer_parameters, figures.model_parameters
    if agree(told, asked):
        return ""
    return f"the trainer counts {told:,} parameters, and the model that was asked for has {asked:,}"
