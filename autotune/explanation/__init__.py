"""Explain results: why a strategy is best, the effect of each dimension, what lies beyond the
space, and what would fit into memory.

Pure functions of a calibration, a space and the measurements; every report includes a sentence.
"""

from autotune.explanation.edge import BeyondEdge, EdgeReport, SpaceEdge, edges
from autotune.explanation.failures import Remedy, explain_failures, remedies_of
from autotune.explanation.impact import DimensionImpact, impacts
from autotune.explanation.layout_map import LayoutMap, MapCell, layout_map
from autotune.explanation.marginal import Marginal, MarginalPoint, MarginalStep, marginal
from autotune.explanation.memory_budget import MemoryBudget, memory_budget
from autotune.explanation.parts import (
    MEMORY_WORDS,
    TIME_PARTS,
    TIME_WORDS,
    ComparedStrategy,
    Origin,
    StrategyParts,
    bubble_note,
    compared_of,
    parts_of,
    time_by_part,
    time_words,
)
from autotune.explanation.rates import BelievedRates
from autotune.explanation.summary import PartsComparison, compare, explain

__all__ = [
    "MEMORY_WORDS",
    "TIME_PARTS",
    "TIME_WORDS",
    "BelievedRates",
    "BeyondEdge",
    "ComparedStrategy",
    "DimensionImpact",
    "EdgeReport",
    "LayoutMap",
    "MapCell",
    "Marginal",
    "MarginalPoint",
    "MarginalStep",
    "MemoryBudget",
    "Origin",
    "PartsComparison",
    "Remedy",
    "SpaceEdge",
    "StrategyParts",
    "bubble_note",
    "compare",
    "compared_of",
    "edges",
    "explain",
    "explain_failures",
    "impacts",
    "layout_map",
    "marginal",
    "memory_budget",
    "parts_of",
    "remedies_of",
    "time_by_part",
    "time_words",
]
