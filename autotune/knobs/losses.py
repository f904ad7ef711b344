"""Whether a knob leaves the first losses as its class promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from search_spaces.knob import Numerics

LIMITS: Mapping[Numerics, float] = {"identical": 0.0, "reordered": 2e-4, "numerics": 1e-2}
"""Largest relative difference of one of the first COMPARED losses, from the narrowest class to the
widest.

- `reordered`: bf16 products summed in another order moved the losses of a transformer of four
  layers by 5e-6 in step 1 and by at most 5e-5 in 20 steps, micro-batches in another order by 3e-5
  (measured on a CPU, learning rates 3e-4 and 3e-3). alibaba/Megatron-LLaMA#31 has 4e-6 in step 4.
  Without the gradients of one micro-batch in four, losses moved by 4e-4 to 1e-2 from step 4 on.
- `numerics`: fp8 weights and inputs moved the same losses by 5e-4; NVIDIA/Megatron-LM#1152 reports
  2e-3, and DeepSeek-V3's report less than 2.5e-3 over a training."""

COMPARED = 20
"""Steps: differences of rounding grow."""

REPEATED = 4.0
"""Times the differences between the baseline's own starts are allowed: sums in random order."""


@dataclass(frozen=True, kw_only=True)
class LossComparison:
    """First losses of one start compared with the baseline's.

    Attributes:
        largest: relative difference, infinite if a loss is not a number.
        step: where it is, counted from 1.
        limit: largest difference within the class.
    """

    largest: float
    step: int
    limit: float

    @property
    def within(self) -> bool:
        return self.largest <= self.limit


def compare_losses(
    baseline: Sequence[Sequence[float]], losses: Sequence[float], *, numerics: Numerics
) -> LossComparison | None:
    """Return the comparison with the baseline's closest start; None without losses.

    All losses count from the first step, with the same seed and data. While the learning rate is
    still near zero, wrong gradients do not show in them.
    """
    known = [own for own in baseline if own]
    if not known or not losses:
        return None
    pairs = (_largest(one, other)[0] for one, other in combinations(known, 2))
    repeated = max(filter(np.isfinite, pairs), default=0.0)
    largest, step = min(_largest(own, losses) for own in known)
    limit = max(LIMITS[numerics], REPEATED * repeated)
    return LossComparison(largest=largest, step=step, limit=limit)


def _largest(one: Sequence[float], other: Sequence[float]) -> tuple[float, int]:
    steps = min(COMPARED, len(one), len(other))
    own, others = np.array(one[:steps]), np.array(other[:steps])
    with np.errstate(invalid="ignore", divide="ignore"):
        equal = (own == others) | (np.isnan(own) & np.isnan(others))
        relative = np.where(equal, 0.0, np.abs(others / own - 1.0))
    relative[~np.isfinite(relative)] = np.inf
    return float(relative.max()), int(relative.argmax()) + 1
