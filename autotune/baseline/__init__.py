"""The baseline: the layout that a campaign measures first and compares its result with. Pure."""

from autotune.baseline.baseline import (
    baseline_line,
    baseline_name,
    baseline_of,
    read_arguments,
    remarks,
)

__all__ = ["baseline_line", "baseline_name", "baseline_of", "read_arguments", "remarks"]
