"""Time of communication. Ranks lie tensor-parallel first, then data-parallel, then by stage, as
in Megatron-DeepSpeed: neighbours in a tensor-parallel group are neighbours in a node."""

from __future__ import annotations

import numpy as np

from autotune.cost_model.layouts import GIGA, Array, Layouts


def link_bytes_per_s(layouts: Layouts, *, group: Array, stride: Array) -> Array:
    """What a ring over `group` ranks, `stride` apart, gets for each of its ranks.

    Within a node the link between two GPUs; across nodes the network share of all the group's
    ranks in a node together, which the ring crosses once, but no more than the link.
    """
    machine, parameters = layouts.machine, layouts.parameters
    inside = GIGA * machine.intra_node_gb_per_s * parameters.intra_node_efficiency
    share = GIGA * machine.inter_node_gb_per_s * parameters.inter_node_efficiency
    members = np.clip(machine.gpus_per_node // stride, 1, group)
    across = np.minimum(inside, share * members)
    return np.where(group * stride <= machine.gpus_per_node, inside, across)


def all_reduce_time_s(layouts: Layouts, size: Array, *, group: Array, stride: Array) -> Array:
    """Ring all-reduce of `size` bytes: `2 (n - 1)/n` of it over each link (Thakur et al. 2005)."""
    volume = 2.0 * (group - 1) / group * size
    latency = layouts.parameters.collective_latency_s * np.log2(group)
    return volume / link_bytes_per_s(layouts, group=group, stride=stride) + latency


def tensor_parallel_time_s(layouts: Layouts) -> Array:
    """One layer and micro-batch: two all-reduces forward, two backward, two when recomputed.

    Each of `2 s b h` bytes (Shoeybi et al. 2019, section 3). With sequence parallelism an
    all-gather and a reduce-scatter take each one's place with the same volume (Korthikanti et al.
    2022, section 4.2.2).
    """
    count = np.where(layouts.full_checkpointing, 6.0, 4.0)
    return count * tensor_all_reduce_time_s(layouts)


def tensor_all_reduce_time_s(layouts: Layouts) -> Array:
    """One all-reduce of a micro-batch's hidden state over the tensor-parallel group."""
    group = layouts.tensor_parallel
    return all_reduce_time_s(layouts, layouts.hidden_bytes, group=group, stride=np.ones_like(group))


def pipeline_time_s(layouts: Layouts) -> Array:
    """One micro-batch through one stage: `2 s b h` bytes each way, for each virtual stage.

    Sequence parallelism sends each rank's part alone. The slowest hop counts: over the network as
    soon as there are two nodes.
    """
    machine, parameters = layouts.machine, layouts.parameters
    inside = GIGA * machine.intra_node_gb_per_s * parameters.intra_node_efficiency
    across = GIGA * machine.inter_node_gb_per_s * parameters.inter_node_efficiency
    rate = np.where(layouts.lattice.world_size > machine.gpus_per_node, across, inside)
    hop = layouts.hidden_bytes / layouts.sequence_shards / rate + parameters.collective_latency_s
    return np.where(layouts.has_pipeline, 2.0 * hop * layouts.virtual_stages, 0.0)


def replica_ring_time_s(layouts: Layouts, *, parameters_of_rank: Array) -> Array:
    """One all-gather of the rank's weights, or one reduce-scatter of its gradients, over the
    replicas: half of an all-reduce of 2 bytes each (4 in fp32)."""
    size = layouts.element_bytes * parameters_of_rank
    group, stride = layouts.data_parallel, layouts.tensor_parallel
    return all_reduce_time_s(layouts, size, group=group, stride=stride) / 2.0


def micro_batch_traffic_s(layouts: Layouts, *, parameters_of_rank: Array) -> Array:
    """What ZeRO sends with every micro-batch.

    Stage 3 gathers the weights forward and again backward and scatters the gradients, `3 N`;
    stage 2 scatters the gradients of each micro-batch (DeepSpeed, `stage_1_and_2.py`: partitioned
    gradients are reduced before the accumulation boundary).
    """
    once = replica_ring_time_s(layouts, parameters_of_rank=parameters_of_rank)
    stage = layouts.zero_stage
    times: Array = np.select([stage == 3, stage == 2], [3.0, 1.0], 0.0)
    return once * times


def step_traffic_s(layouts: Layouts, *, parameters_of_rank: Array) -> Array:
    """What is sent once in each step: an all-reduce of the gradients (stage 0), or their
    reduce-scatter and an all-gather of the new weights (stage 1); stage 2 has the latter alone."""
    once = replica_ring_time_s(layouts, parameters_of_rank=parameters_of_rank)
    stage = layouts.zero_stage
    times: Array = np.select([stage <= 1, stage == 2], [2.0, 1.0], 0.0)
    return once * times


def exposed_time_s(layouts: Layouts, traffic: Array, *, behind: Array) -> Array:
    """What is left of `traffic` seconds after a part of it ran behind `behind` seconds of work."""
    return traffic - layouts.parameters.data_parallel_overlap * np.minimum(traffic, behind)
