"""Bounds on fitting into memory that hold without the formulas: a strategy that needs more of
everything than one that ran out of memory runs out of memory, too."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.calibration.sample import Sample
from autotune.cost_model.columns import Array, Columns, Mask
from search_spaces.dimensions import TABLE

NOT_MORE = (
    *(d.name for d in TABLE if d.memory == "less" and not d.columns),
    "full_checkpointing",
    "selective_checkpointing",
    "fused_norm",
)
"""Dimensions that divide memory, and switches that save it: a higher value may need less."""

NOT_LESS = (
    *(d.name for d in TABLE if d.memory == "more"),
    "seq_length",
    "num_layers",
    "hidden_size",
    "vocab_size",
)
"""Dimensions that memory grows with."""

EQUAL = (
    *(column for d in TABLE if d.memory == "either" for column in d.columns or (d.name,)),
    "gated_mlp",
    "tied_embeddings",
    "unfused_softmax",
    "flash_1",
)

MARGIN = 0.05
"""Share of the memory by which a peak must stay below the limit to count as fitting."""

EXCEPTION = 0.02
"""Probability of an exception: memory held by other processes, or fragmentation."""


@dataclass(frozen=True)
class Dominance:
    """Bounds that the observed results set for n strategies.

    Attributes:
        never: shape (n,), number of observed strategies that need no more and ran out of memory.
        surely: shape (n,), whether an observed strategy that needs as much has fitted, and `never`
            is 0.
    """

    never: NDArray[np.int64]
    surely: Mask

    @classmethod
    def of(
        cls, columns: Columns, sample: Sample, *, memory_gib: float, headroom_gib: float = 0.0
    ) -> Dominance:
        """Compare strategies with the observed ones.

        Args:
            sample: of memory; a peak counts as fitting if it leaves a MARGIN of `memory_gib`.
            headroom_gib: memory that must stay free. If positive, a peak beyond the rest counts as
                not fitting, and a run without a peak says nothing.
        """
        if not len(sample.columns):
            nothing = np.zeros(len(columns), dtype=np.int64)
            return cls(never=nothing, surely=nothing > 0)
        bounded, limit = headroom_gib > 0.0, memory_gib - headroom_gib
        read = sample.side == 0
        beyond = read & (sample.log_value > np.log(limit)) & bounded
        within = read & (sample.log_value <= np.log((1.0 - MARGIN) * limit))
        unread = (sample.side > 0) & (not bounded)
        ran_out = sample.columns.take(np.flatnonzero((sample.side < 0) | beyond))
        fitted = sample.columns.take(np.flatnonzero(unread | within))
        never = needs_as_much(columns, ran_out).sum(axis=1)
        surely = needs_as_much(fitted, columns).any(axis=0) & (never == 0)
        return cls(never=never, surely=surely)

    def bounded(self, probability: Array) -> Array:
        """Return the probability of fitting, shape (n,), clipped to the bounds."""
        bound = np.where(
            self.never > 0, np.minimum(probability, EXCEPTION**self.never), probability
        )
        return np.where(self.surely, np.maximum(bound, 1.0 - EXCEPTION), bound)

    def drawn(self, fits: Mask, generator: np.random.Generator) -> Mask:
        """Apply the bounds to draws of fitting, shape (count, n).

        Within a draw, an exception holds for every strategy bounded by it: if the failure was an
        accident, it says nothing about any of them.
        """
        accident = generator.uniform(size=(len(fits), 1)) < EXCEPTION ** np.maximum(self.never, 1)
        excepted = np.where(self.never > 0, fits & accident, fits)
        return np.asarray(excepted | (self.surely & ~accident), dtype=np.bool_)


def needs_as_much(columns: Columns, others: Columns) -> Mask:
    """Return whether each strategy needs at least as much memory as each of `others`, by their
    dimensions; shape (n, k)."""

    def pair(name: str) -> tuple[Array, Array]:
        one = np.broadcast_to(columns[name], len(columns))[:, np.newaxis]
        return one, np.broadcast_to(others[name], len(others))

    result = np.ones((len(columns), len(others)), dtype=np.bool_)
    for name in NOT_MORE:
        one, other = pair(name)
        result &= one <= other
    for name in NOT_LESS:
        one, other = pair(name)
        result &= one >= other
    for name in EQUAL:
        one, other = pair(name)
        result &= one == other
    for key in {*columns.settings, *others.settings}:
        # The effect of a trainer-defined dimension on memory is unknown.
        one, other = (np.broadcast_to(c.has_setting(*key), len(c)) for c in (columns, others))
        result &= one[:, np.newaxis] == other
    # ZeRO shards over replicas: with fewer replicas, each holds more.
    (shards, others_shards), (stage, others_stage) = pair("zero_shard_gpus"), pair("zero_stage")
    parts, others_parts = _parts(columns)[:, np.newaxis], _parts(others)
    result &= (stage == 0) | (shards * parts <= others_shards * others_parts)
    # ZeRO 3 keeps gradients whole only in a pipeline.
    stages, others_stages = pair("pipeline_parallel")
    whole = (others_stage == 3) & (others_stages > 1)
    result &= ~whole | (stage <= 1) | (stages > 1)
    return result & (_in_flight_share(columns)[:, np.newaxis] >= _in_flight_share(others))


def _parts(columns: Columns) -> Array:
    cut = columns["tensor_parallel"] * columns["pipeline_parallel"]
    return np.broadcast_to(cut, len(columns))


def _in_flight_share(columns: Columns) -> Array:
    stages = columns["pipeline_parallel"]
    share = np.minimum(columns["gradient_accumulation_steps"], stages) / stages
    return np.broadcast_to(share, len(columns))
