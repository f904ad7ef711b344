"""What is to be expected of strategies that were not tried, and how surely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.cost_model.columns import Array

COVERAGE = 0.8
"""Share of measurements that an interval is to hold."""

Z = 1.2816
"""Standard deviations on either side that hold COVERAGE of a normal distribution."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Forecast:
    """Medians and 80 % intervals of what would be measured; arrays have shape (n,).

    Attributes:
        iteration_time_s: seconds of one optimizer step; `time_parts_s` add up to it.
        memory_gib: peak of the fullest rank; `memory_parts_gib` add up to it.
        fit_probability: that memory suffices.
        energy_joule: of one optimizer step on all nodes, from the median time; None where the
            machine's power figures are not known. Not calibrated.
    """

    iteration_time_s: Array
    iteration_time_low_s: Array
    iteration_time_high_s: Array
    memory_gib: Array
    memory_low_gib: Array
    memory_high_gib: Array
    fit_probability: Array
    energy_joule: Array | None
    time_parts_s: Mapping[str, Array]
    memory_parts_gib: Mapping[str, Array]
