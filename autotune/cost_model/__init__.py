"""Step time, memory and energy of a whole lattice of strategies at once.

A first model: closed formulas from the literature with general knowledge of the hardware, good
enough to filter a space and to simulate. `docs/cost-model.md` lists its terms and its errors.
"""

from autotune.cost_model.estimate import Estimate, estimate
from autotune.cost_model.parameters import Parameters, perturbed
from autotune.cost_model.states import StateBytes, state_bytes_per_parameter

__all__ = [
    "Estimate",
    "Parameters",
    "StateBytes",
    "estimate",
    "perturbed",
    "state_bytes_per_parameter",
]
