"""Predictions for a strategy, a space, or a campaign before it runs. Pure."""

from autotune.prediction.campaign import check_campaign, dry_run, misplaced
from autotune.prediction.plan import plan
from autotune.prediction.scaling import scaling_series, scaling_study
from autotune.prediction.space import space_report
from autotune.prediction.strategy import predict
from autotune.prediction.study import settled, study_space
from autotune.prediction.sweep import sweep

__all__ = [
    "check_campaign",
    "dry_run",
    "misplaced",
    "plan",
    "predict",
    "scaling_series",
    "scaling_study",
    "settled",
    "space_report",
    "study_space",
    "sweep",
]
