"""Memory of the fullest rank, part by part, in bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.cost_model.activations import KeptBytes
from autotune.cost_model.columns import Array, Mask
from autotune.cost_model.states import (
    StateBytes,
    gather_memory,
    stage_layers,
    stage_parameters,
    stage_routed_parameters,
    state_bytes,
)
from autotune.cost_model.strategies import GIB, Strategies, total

MOST_ENDS = 2
"""Stages of a pipeline that has none between its first and its last."""


def micro_batches_in_flight(strategies: Strategies, *, first: bool, last: bool) -> Array:
    """Return the micro-batches that a stage keeps at once.

    Stage i of p keeps `min(m, p - i)`, interleaved `(2 (p - 1 - i) + (v - 1) p + 1) / v`: warm-up
    and one more, each of a v-th of the layers; that is `p (1 + (p - 1)/(p v))` on the first
    (Korthikanti et al. 2022, section 4.2.3).
    """
    if last and first:
        return np.ones(())
    p, v = strategies.pipeline_parallel, strategies.virtual_stages
    after = p - 1.0 if first else 0.0 if last else p - 2.0
    most = after + 1.0
    if strategies.interleaved.any():
        warm_up = (2.0 * after + (v - 1.0) * p + 1.0) / v
        most = np.where(strategies.interleaved, warm_up, most)
    return np.minimum(strategies.micro_batches, most)


@dataclass(frozen=True)
class StageTerms:
    """Bytes that stages are put together from.

    Attributes:
        kept: of one micro-batch.
        states: for each parameter of a rank but the routed experts'.
        expert_states: for each parameter of those; None for models without.
        gathered, context: of any stage.
    """

    kept: KeptBytes
    states: StateBytes
    expert_states: StateBytes | None
    gathered: Array
    context: Array

    @classmethod
    def of(cls, strategies: Strategies, kept: KeptBytes | None) -> StageTerms:
        experts = strategies.any_experts
        shards = strategies.expert_shards if experts else None
        return cls(
            kept=kept or KeptBytes.of(strategies),
            states=state_bytes(strategies),
            expert_states=state_bytes(strategies, shards=shards) if experts else None,
            gathered=gather_memory(strategies),
            context=context_memory(strategies),
        )


def stage_memory(
    strategies: Strategies, terms: StageTerms, *, first: bool, last: bool
) -> dict[str, Array]:
    """Return all parts of one rank of a stage, bytes, named as in `Estimate.memory_parts_gib`; of
    experts only for models that have them.

    The peak is at the start of the backward pass: what is kept, and the logits or the layer that is
    recomputed, whichever is more.
    """
    n = stage_parameters(strategies, first=first, last=last)
    logits = terms.kept.logits if last else np.zeros(())
    logits_last = logits >= terms.kept.passing
    parts = {
        "parameters": terms.states.parameters * n,
        "gradients": terms.states.gradients * n,
        "optimizer": terms.states.optimizer * n,
        **_expert_states(strategies, terms, first=first, last=last),
        **_activations(strategies, terms.kept, first=first, last=last),
        "recomputation": np.where(logits_last, 0.0, terms.kept.passing),
        "logits": np.where(logits_last, logits, 0.0),
        "zero3_gather": terms.gathered,
    }
    fragmented = total(parts) * strategies.parameters.fragmentation
    return parts | {"overhead": terms.context + fragmented}


def _expert_states(
    strategies: Strategies, terms: StageTerms, *, first: bool, last: bool
) -> dict[str, Array]:
    if terms.expert_states is None:
        return {}
    n = stage_routed_parameters(strategies, first=first, last=last)
    return {"experts": terms.expert_states.total * n}


def _activations(
    strategies: Strategies, kept: KeptBytes, *, first: bool, last: bool
) -> dict[str, Array]:
    dense, expert = stage_layers(strategies, first=first, last=last)
    in_flight = micro_batches_in_flight(strategies, first=first, last=last)
    if kept.expert is None or kept.routed is None:
        return {"activations": kept.dense * (dense * in_flight)}
    return {
        "activations": (kept.dense * dense + kept.expert * expert) * in_flight,
        "routed_tokens": kept.routed * (expert * in_flight),
    }


def context_memory(strategies: Strategies) -> Array:
    """Return what the framework takes before anything is trained: context, and communicators in
    use."""
    parameters = strategies.parameters
    communicators = (
        (strategies.tensor_parallel > 1).astype(np.float64)
        + (strategies.pipeline_parallel > 1)
        + (strategies.replicas > 1)
    )
    return GIB * (parameters.context_gib + parameters.communicator_gib * communicators)


def memory_parts(strategies: Strategies, kept: KeptBytes | None = None) -> dict[str, Array]:
    """Return the parts of the fullest stage: without a pipeline the one, else the first, the second
    or the last one.

    The first has the most micro-batches in flight, the last the logits; those between hold less
    than the first, but for the second where the first has the layers without experts.

    Args:
        kept: of each strategy's micro-batches, where they were worked out before.
    """
    terms = StageTerms.of(strategies, kept)
    if not strategies.has_pipeline.any():
        return stage_memory(strategies, terms, first=True, last=True)
    fullest = stage_memory(strategies, terms, first=True, last=False)
    if strategies.have("dense_layers"):
        second = stage_memory(strategies, terms, first=False, last=False)
        between = strategies.pipeline_parallel > MOST_ENDS
        fullest = _chosen(between & (total(second) > total(fullest)), second, fullest)
    last = stage_memory(strategies, terms, first=False, last=True)
    fullest = _chosen(total(last) > total(fullest), last, fullest)
    if strategies.has_pipeline.all():
        return fullest
    whole = stage_memory(strategies, terms, first=True, last=True)
    return _chosen(strategies.has_pipeline, fullest, whole)


def last_stage_parts(strategies: Strategies) -> dict[str, Array]:
    """Return the parts of the last stage, which a program's last rank tells; of the one stage
    without a pipeline."""
    terms = StageTerms.of(strategies, None)
    last = stage_memory(strategies, terms, first=False, last=True)
    whole = stage_memory(strategies, terms, first=True, last=True)
    return _chosen(strategies.has_pipeline, last, whole)


def _chosen(condition: Mask, one: dict[str, Array], other: dict[str, Array]) -> dict[str, Array]:
    return {name: np.where(condition, one[name], other[name]) for name in other}
