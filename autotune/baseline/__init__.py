"""The baseline: the layout that a campaign measures first and compares its result with. Pure."""

from autotune.baseline.baseline import baseline_of

__all__ = ["baseline_of"]
