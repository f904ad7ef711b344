"""The cost model fitted to trials of one machine and software stack, with honest uncertainty.

Constants by maximum a posteriori round general knowledge, a Gaussian process over what the formulas
leave, and a probability of fitting into memory. `docs/cost-model.md` has the method and its errors.
"""

from autotune.calibration.calibration import CalibratedConstant, Calibration
from autotune.calibration.forecast import COVERAGE, Forecast
from autotune.calibration.observation import Observation

__all__ = ["COVERAGE", "CalibratedConstant", "Calibration", "Forecast", "Observation"]
