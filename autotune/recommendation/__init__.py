"""Recommendations from a campaign's trials. Pure."""

from autotune.recommendation.baseline import baseline_result
from autotune.recommendation.projected import all_contenders, nodes_at_hand
from autotune.recommendation.ranking import contenders, improvements, place
from autotune.recommendation.recommendation import (
    as_of_now,
    recommend,
    strategies_to_confirm,
    training_cost,
)

__all__ = [
    "all_contenders",
    "as_of_now",
    "baseline_result",
    "contenders",
    "improvements",
    "nodes_at_hand",
    "place",
    "recommend",
    "strategies_to_confirm",
    "training_cost",
]
