"""Step time, memory and energy of a whole lattice of strategies at once.

Closed formulas from the literature with typical constants of the hardware, accurate enough to
filter a space and to simulate. `docs/cost-model.md` lists the terms and their errors.
"""

from autotune.cost_model.estimate import Estimate, estimate, estimate_in
from autotune.cost_model.parameters import Parameters, perturbed
from autotune.cost_model.states import StateBytes, state_bytes_per_parameter

__all__ = [
    "Estimate",
    "Parameters",
    "StateBytes",
    "estimate",
    "estimate_in",
    "perturbed",
    "state_bytes_per_parameter",
]
