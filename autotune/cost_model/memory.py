"""Memory of the fullest rank by part, in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autotune.cost_model.activations import ActivationBytes
from autotune.cost_model.columns import Array, Mask
from autotune.cost_model.parameters import Constant
from autotune.cost_model.states import (
    StateBytes,
    gather_memory,
    stage_layers,
    stage_parameters,
    stage_routed_parameters,
    state_bytes,
)
from autotune.cost_model.strategies import GIB, Strategies, total

FREED = ("activations", "routed_tokens", "recomputation", "logits", "zero3_gather")
"""Parts that each step allocates and frees; the others stay where they are."""

MOST_ENDS = 2
"""Maximum number of stages of a pipeline without a middle stage."""


def micro_batches_in_flight(strategies: Strategies, *, first: bool, last: bool) -> Array:
    """Return the number of micro-batches whose activations a stage holds at once.

    Stage i of p holds `min(m, p - i)`, or with interleaving `(2 (p - 1 - i) + (v - 1) p + 1) / v`:
    the warm-up and one more, each with 1/v of the layers; on the first stage that is `p (1 + (p -
    1)/(p v))` (Korthikanti et al. 2022, section 4.2.3).
    """
    if last and first:
        return np.ones(())
    p, v = strategies.pipeline_parallel, strategies.virtual_stages
    after = p - 1.0 if first else 0.0 if last else p - 1.0 - strategies.stages.place
    most = after + 1.0
    if strategies.interleaved.any():
        warm_up = (2.0 * after + (v - 1.0) * p + 1.0) / v
        most = np.where(strategies.interleaved, warm_up, most)
    return np.minimum(strategies.micro_batches, most)


@dataclass(frozen=True)
class StageTerms:
    """Terms of a stage's memory, in bytes.

    Attributes:
        activations: of one micro-batch.
        states: per parameter of a rank, without routed experts.
        expert_states: per parameter of routed experts; None for models without.
        gathered, context: of any stage.
    """

    activations: ActivationBytes
    states: StateBytes
    expert_states: StateBytes | None
    gathered: Array
    context: Array

    @classmethod
    def of(cls, strategies: Strategies, activations: ActivationBytes | None) -> StageTerms:
        experts = strategies.any_experts
        shards = strategies.expert_shards if experts else None
        return cls(
            activations=activations or ActivationBytes.of(strategies),
            states=state_bytes(strategies),
            expert_states=state_bytes(strategies, shards=shards) if experts else None,
            gathered=gather_memory(strategies),
            context=context_memory(strategies),
        )


def stage_memory(
    strategies: Strategies, terms: StageTerms, *, first: bool, last: bool
) -> dict[str, Array]:
    """Return the memory of one rank of a stage by part, in bytes, keyed as
    `Estimate.memory_parts_gib`; models without experts have no parts for them.

    The peak is at the start of the backward pass: the activations, and the logits or the recomputed
    layer, whichever is larger.
    """
    n = stage_parameters(strategies, first=first, last=last)
    logits = terms.activations.logits if last else np.zeros(())
    logits_last = logits >= terms.activations.passing
    n = n * (1.0 - strategies.parameters.offloaded_states)
    parts = {
        "parameters": terms.states.parameters * n,
        "gradients": terms.states.gradients * n,
        "optimizer": terms.states.optimizer * n,
        **_expert_states(strategies, terms, first=first, last=last),
        **_activations(strategies, terms.activations, first=first, last=last),
        "recomputation": np.where(logits_last, 0.0, terms.activations.passing),
        "logits": np.where(logits_last, logits, 0.0),
        "zero3_gather": terms.gathered,
    }
    freed = total({name: parts[name] for name in FREED if name in parts})
    return parts | {
        "fragmentation": strategies.parameters.fragmentation * freed,
        "overhead": terms.context,
    }


def _expert_states(
    strategies: Strategies, terms: StageTerms, *, first: bool, last: bool
) -> dict[str, Array]:
    if terms.expert_states is None:
        return {}
    n = stage_routed_parameters(strategies, first=first, last=last)
    on_device = 1.0 - strategies.parameters.offloaded_states
    return {"experts": terms.expert_states.total * n * on_device}


def _activations(
    strategies: Strategies, activations: ActivationBytes, *, first: bool, last: bool
) -> dict[str, Array]:
    dense, expert = stage_layers(strategies, first=first, last=last)
    in_flight = micro_batches_in_flight(strategies, first=first, last=last)
    if activations.expert is None or activations.routed is None:
        return {"activations": activations.dense * (dense * in_flight)}
    return {
        "activations": (activations.dense * dense + activations.expert * expert) * in_flight,
        "routed_tokens": activations.routed * (expert * in_flight),
    }


def context_memory(strategies: Strategies) -> Array:
    """Return the framework's memory before training: context, and communicators in use."""
    parameters = strategies.parameters
    communicators = (
        (strategies.tensor_parallel > 1).astype(np.float64)
        + (strategies.pipeline_parallel > 1)
        + (strategies.replicas > 1)
    )
    return GIB * (parameters.context_gib + parameters.communicator_gib * communicators)


def memory_parts(
    strategies: Strategies, activations: ActivationBytes | None = None
) -> dict[str, Array]:
    """Return the parts of the fullest stage: the only one, or the first, one between or the last.

    The first stage has the most micro-batches in flight, the last one the logits. Stages between
    hold less than the first, unless it has fewer layers or those without experts.

    Args:
        activations: of each strategy's micro-batches, if already computed.
    """
    terms = StageTerms.of(strategies, activations)
    if not strategies.has_pipeline.any():
        return stage_memory(strategies, terms, first=True, last=True)
    fullest = stage_memory(strategies, terms, first=True, last=False)
    if strategies.have("dense_layers") or strategies.uneven.any():
        inner = stage_memory(strategies, terms, first=False, last=False)
        between = strategies.pipeline_parallel > MOST_ENDS
        fullest = _chosen(between & (total(inner) > total(fullest)), inner, fullest)
    last = stage_memory(strategies, terms, first=False, last=True)
    fullest = _chosen(total(last) > total(fullest), last, fullest)
    if strategies.has_pipeline.all():
        return fullest
    whole = stage_memory(strategies, terms, first=True, last=True)
    return _chosen(strategies.has_pipeline, fullest, whole)


def allocated_memory(parts: Mapping[str, Array]) -> Array:
    """Return what torch's allocator gave out at the peak (`max_memory_allocated`)."""
    outside = ("fragmentation", "overhead")
    return total({name: part for name, part in parts.items() if name not in outside})


def reserved_memory(parts: Mapping[str, Array], *, device: float, cached_share: Constant) -> Array:
    """Return what torch's allocator took from the device (`max_memory_reserved`): what it gave out,
    the gaps between, and freed blocks that it keeps as long as the device has room.

    Args:
        device: its memory, in the unit of the parts.
    """
    used = allocated_memory(parts) + parts["fragmentation"]
    room = np.maximum(device - parts["overhead"], used)
    return np.minimum(used + cached_share * device, room)


def last_stage_parts(strategies: Strategies) -> dict[str, Array]:
    """Return the parts of the last stage, whose memory some trainers report; of the only stage
    without a pipeline."""
    terms = StageTerms.of(strategies, None)
    last = stage_memory(strategies, terms, first=False, last=True)
    whole = stage_memory(strategies, terms, first=True, last=True)
    return _chosen(strategies.has_pipeline, last, whole)


def _chosen(condition: Mask, one: dict[str, Array], other: dict[str, Array]) -> dict[str, Array]:
    return {name: np.where(condition, one[name], other[name]) for name in other}
