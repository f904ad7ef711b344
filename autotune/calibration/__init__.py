"""The cost model fitted to trials of one machine and software stack, with honest uncertainty.

Constants by maximum a posteriori round general knowledge, a Gaussian process over what the formulas
leave, and a probability of fitting into memory. `docs/cost-model.md` has the method and its errors.
"""

from autotune.calibration.calibration import (
    COVERAGE,
    CalibratedConstant,
    Calibration,
    Forecast,
    calibration_for,
    general_knowledge,
    machine_differences,
    machine_figures,
)
from autotune.calibration.observations import Observation, observations_of

__all__ = [
    "COVERAGE",
    "CalibratedConstant",
    "Calibration",
    "Forecast",
    "Observation",
    "calibration_for",
    "general_knowledge",
    "machine_differences",
    "machine_figures",
    "observations_of",
]
