"""The cost model calibrated on trials of one machine and software stack.

Constants are maximum a posteriori estimates, a Gaussian process models the residual of the
formulas, and every forecast has an interval and a probability of fitting into memory.
`docs/cost-model.md` describes the method and its errors.
"""

from autotune.calibration.calibration import (
    COVERAGE,
    Calibration,
    Forecast,
    general_knowledge,
    machine_figures,
)
from autotune.calibration.observations import Observation, observations_of

__all__ = [
    "COVERAGE",
    "Calibration",
    "Forecast",
    "Observation",
    "general_knowledge",
    "machine_figures",
    "observations_of",
]
