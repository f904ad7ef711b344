"""Time of one iteration by part: 1F1B over the stages, then gradients and optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

from autotune.cost_model import communication, compute
from autotune.cost_model.columns import (
    EXPERT_LAYOUT,
    RECOMPUTED_LAYERS,
    Array,
    Rows,
    distinct,
    taken,
)
from autotune.cost_model.layers import mean_block
from autotune.cost_model.states import fullest_routed_parameters, fullest_stage_parameters
from autotune.cost_model.strategies import Strategies, total

MICRO_BATCH = (
    "tensor_parallel",
    "context_parallel",
    "virtual_stages",
    "micro_batch_size",
    "sequence_parallel",
    "flash_attention",
    "full_checkpointing",
    "selective_checkpointing",
    "fp32",
    "fp8",
    "mxfp8",
    "nvfp4",
    *EXPERT_LAYOUT,
)
"""Columns that the cost of a micro-batch depends on, besides whether there are several stages and
nodes, and whether ZeRO shards the weights."""

CAPTURED = 0.9
"""Share of the host's work that CUDA graphs of a whole step remove."""

SHARPNESS = 8.0
"""Sharpness of the maximum of host time and GPU time of a layer: launches run ahead of kernels, so
nearly the longer one counts."""


@dataclass(frozen=True)
class MicroBatch:
    """Seconds of one micro-batch, forward and backward.

    Attributes:
        layer: part of one layer -> seconds.
        first, last: what the first and the last stage do besides their layers.
        transfer: communication of each stage with its neighbours.
    """

    layer: dict[str, Array]
    first: Array
    last: Array
    transfer: Array

    @classmethod
    def of(cls, strategies: Strategies) -> MicroBatch:
        reduce = communication.tensor_all_reduce_time_s(strategies)
        return cls(
            layer=layer_parts(strategies),
            # The embedding's result and the gradient of the last hidden state are all-reduced.
            first=compute.embedding_time_s(strategies) + reduce,
            last=compute.logits_time_s(strategies) + reduce,
            transfer=communication.pipeline_time_s(strategies),
        )

    @cached_property
    def layer_s(self) -> Array:
        return total(self.layer)

    def take(self, rows: Rows) -> MicroBatch:
        """Return the micro-batches at the indices `rows`."""
        return MicroBatch(
            layer={name: taken(part, rows) for name, part in self.layer.items()},
            first=taken(self.first, rows),
            last=taken(self.last, rows),
            transfer=taken(self.transfer, rows),
        )


def sharing_micro_batch(strategies: Strategies) -> tuple[Rows, Rows]:
    """Group a model's strategies by the cost of their micro-batches; the result is that of
    `distinct`."""
    columns = [strategies.columns[name] for name in MICRO_BATCH]
    more = [strategies.has_pipeline, strategies.several_nodes, strategies.zero_stage == 3]
    if strategies.recomputes_some:
        more += [strategies.pipeline_parallel, strategies.columns[RECOMPUTED_LAYERS]]
    return distinct([*columns, *more], rows=len(strategies.columns))


def layer_parts(strategies: Strategies) -> dict[str, Array]:
    """Return the parts of one layer and micro-batch, forward and backward, in seconds; `host` is
    the excess of kernel launches. For a model with several kinds of layers, the mean layer."""
    equal = strategies.of_equal_layers
    parts = _equal_parts(strategies) if equal else _mean_parts(strategies)
    busy, host = total(parts), compute.host_time_s(strategies)
    captured = np.maximum(strategies.columns["cuda_graphs"], strategies.parameters.cuda_graphs)
    host = host * (1.0 - CAPTURED * captured)
    if strategies.any_experts:
        host = host * (1.0 + strategies.parameters.expert_host * strategies.expert_share)
        host = host + compute.expert_loop_time_s(strategies)
    longer = (busy**SHARPNESS + host**SHARPNESS) ** (1.0 / SHARPNESS)
    if strategies.any_experts:
        longer = longer + compute.waiting_time_s(strategies, busy=busy, host=host)
    return parts | {"host": longer - busy}


def _equal_parts(strategies: Strategies) -> dict[str, Array]:
    matrix = compute.matrix_time_s(strategies)
    attention = compute.attention_time_s(strategies)
    elementwise = compute.elementwise_time_s(strategies)
    return {
        "matrix_multiplication": matrix[0] + matrix[1],
        "attention": attention[0] + attention[1],
        "elementwise": elementwise[0] + elementwise[1],
        "recomputation": compute.recomputation_time_s(
            strategies, matrix=matrix[0], attention=attention[0], elementwise=elementwise[0]
        ),
        "tensor_parallel": communication.tensor_parallel_time_s(strategies),
        "context_parallel": communication.context_parallel_time_s(strategies, attention=attention),
    }


def _mean_parts(strategies: Strategies) -> dict[str, Array]:
    block = mean_block(strategies)
    experts = {}
    if strategies.any_experts:
        experts = {
            "experts": block.experts[0] + block.experts[1],
            "all_to_all": block.all_to_all[0] + block.all_to_all[1],
        }
    full, repeated = strategies.full_checkpointing, strategies.recomputed_share * block.forward
    return {
        "matrix_multiplication": block.matrix[0] + block.matrix[1],
        "attention": block.attention[0] + block.attention[1],
        **experts,
        "elementwise": block.elementwise[0] + block.elementwise[1],
        "recomputation": np.where(full, repeated, block.repeated),
        "tensor_parallel": communication.tensor_parallel_time_s(strategies),
        "context_parallel": communication.context_parallel_time_s(
            strategies, attention=block.attention
        ),
    }


def ends_of_slowest(strategies: Strategies, micro_batch: MicroBatch) -> Array:
    """Return seconds of the slowest stage besides the layers of the fullest: the worse end, or both
    without a pipeline. Uneven stages have fewer layers at the ends, which are taken to balance
    them."""
    last = last_s(strategies, micro_batch)
    worse = np.maximum(micro_batch.first, last)
    if not strategies.uneven.any():
        return np.where(strategies.has_pipeline, worse, micro_batch.first + last)
    layers = strategies.num_layers * micro_batch.layer_s
    balanced = (layers + micro_batch.first + last) / strategies.pipeline_parallel
    over = np.maximum(balanced - strategies.stages.fullest * micro_batch.layer_s, 0.0)
    worse = np.where(strategies.uneven, np.minimum(over, worse), worse)
    return np.where(strategies.has_pipeline, worse, micro_batch.first + last)


def last_s(strategies: Strategies, micro_batch: MicroBatch) -> Array:
    """Return seconds of the last stage besides its layers: logits, plus a layer and logits for each
    depth of multi-token prediction."""
    predicting = strategies.columns["mtp_layers"]
    if not strategies.have("mtp_layers"):
        return micro_batch.last
    return micro_batch.last + predicting * (micro_batch.layer_s + micro_batch.last)


def bubble_time_s(strategies: Strategies, micro_batch: MicroBatch, *, slowest: Array) -> Array:
    """Return seconds of filling and draining the pipeline: the sum of the stages minus the slowest,
    divided by the virtual stages.

    With m micro-batches 1F1B takes `sum of stages + (m - 1) x slowest`, that is `m x slowest` plus
    this (Narayanan et al. 2021, section 2.2), at the steady rate.
    """
    hops = strategies.pipeline_parallel * micro_batch.transfer
    layers = strategies.num_layers * micro_batch.layer_s
    stages = layers + micro_batch.first + last_s(strategies, micro_batch) + hops
    return np.maximum(stages - slowest, 0.0) / strategies.virtual_stages


def replica_parts(strategies: Strategies, micro_batch: MicroBatch) -> dict[str, Array]:
    """Return exposed traffic of the replicas, with every micro-batch and once per step, and the
    optimizer.

    Traffic overlaps the computation of one micro-batch on the stage with most parameters; traffic
    once per step overlaps what the last micro-batch's own traffic leaves of it. ZeRO-3's gathers in
    a pipeline are not overlapped ("can be expensive and non-overlapped", torchtitan b5bcd76,
    fsdp.py), and each stage waits for them while the pipeline fills and drains, too.
    """
    work = strategies.stages.fullest * micro_batch.layer_s
    held = [communication.Copies.unrouted(strategies, fullest_stage_parameters(strategies))]
    if strategies.any_experts:
        routed = fullest_routed_parameters(strategies)
        held.append(communication.Copies.experts(strategies, routed))
    every_micro_batch, every_step, optimizer = (
        reduce(np.add, times)
        for times in zip(
            *(
                (
                    *communication.traffic_s(strategies, copies),
                    compute.optimizer_time_s(strategies, copies),
                )
                for copies in held
            ),
            strict=True,
        )
    )
    partly = communication.exposed_time_s(strategies, every_micro_batch, behind=work)
    exposed_micro_batch = np.where(strategies.reduced_once, every_micro_batch, partly)
    filling = np.where(strategies.reduced_once, strategies.pipeline_parallel - 1.0, 0.0)
    left = np.maximum(work - every_micro_batch, 0.0)
    exposed_step = communication.exposed_time_s(strategies, every_step, behind=left)
    return {
        "zero_micro_batches": (strategies.micro_batches + filling) * exposed_micro_batch,
        "data_parallel": exposed_step + communication.replica_latency_s(strategies),
        "optimizer_step": optimizer,
        "step_overhead": np.asarray(strategies.parameters.step_overhead_s),
    }


def time_parts(strategies: Strategies, micro_batch: MicroBatch) -> dict[str, Array]:
    """Return the parts of one iteration in seconds; they add up to its time."""
    m = strategies.micro_batches
    layers = m * strategies.stages.fullest
    parts = {name: layers * seconds for name, seconds in micro_batch.layer.items()}
    ends = ends_of_slowest(strategies, micro_batch)
    parts["embedding_and_logits"] = m * ends
    parts["pipeline_transfer"] = m * micro_batch.transfer
    slowest = strategies.stages.fullest * micro_batch.layer_s + ends + micro_batch.transfer
    bubble = bubble_time_s(strategies, micro_batch, slowest=slowest)
    parts["pipeline_bubble"] = bubble
    parts["stragglers"] = communication.straggling_share(strategies) * (m * slowest + bubble)
    return parts | replica_parts(strategies, micro_batch)
