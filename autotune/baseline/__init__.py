"""The layout that a campaign measures first, and against which its result is told. Pure."""

from autotune.baseline.baseline import baseline_of

__all__ = ["baseline_of"]
