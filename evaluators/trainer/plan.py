"""What every layer of a trial's model needs to know."""

from __future__ import annotations

import math
from dataclasses import dataclass

from evaluators.trainer.rank_group import RankGroup
from evaluators.trainer.tensor_parallel import Build
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

STANDARD_DEVIATION = 0.02


@dataclass(frozen=True)
class Plan:
    """The model's shape, its layout, and how weights are made.

    Attributes:
        context: the ranks that share each sequence.
        balanced: whether tokens are dealt out evenly to the experts, whatever the router says.
    """

    transformer: Transformer
    strategy: Strategy
    build: Build
    context: RankGroup
    balanced: bool = False

    @property
    def residual_std(self) -> float:
        """The deviation of projections that write to the residual stream (GPT-2, section 2.3)."""
        return STANDARD_DEVIATION / math.sqrt(2 * self.transformer.num_layers)

    @property
    def bias(self) -> bool:
        return self.transformer.has_biases
