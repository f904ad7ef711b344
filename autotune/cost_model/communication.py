"""Time of communication.

Ranks are ordered tensor-parallel first, then data-parallel, then by stage, as in
Megatron-DeepSpeed, so a tensor-parallel group has adjacent ranks of a node.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autotune.cost_model.columns import Array
from autotune.cost_model.parameters import Constant
from autotune.cost_model.strategies import GIGA, Strategies


def intra_node_bytes_per_s(strategies: Strategies) -> Constant:
    """Return the bandwidth of a ring over the link between two GPUs of a node."""
    return (
        GIGA * strategies.machine.intra_node_gb_per_s * strategies.parameters.intra_node_efficiency
    )


def ring_bytes_per_s(
    strategies: Strategies, *, group: Array, stride: Array, network: Constant
) -> Array:
    """Return the bandwidth per rank of a ring over `group` ranks that are `stride` apart.

    Within a node it is the link between two GPUs; across nodes the combined network share of the
    group's ranks in a node, since the ring crosses it once, limited by the link.

    Args:
        network: share of a GPU's network bandwidth that such a collective reaches.
    """
    gpus = strategies.machine.fast_gpus
    inside = intra_node_bytes_per_s(strategies)
    share = GIGA * strategies.machine.inter_node_gb_per_s * network
    members = np.maximum(np.floor(gpus / stride), 1.0)
    across = np.minimum(inside, share * members)
    return np.where(group * stride <= gpus, inside, across)


def tensor_parallel_time_s(strategies: Strategies) -> Array:
    """Return exposed seconds per layer and micro-batch: two all-reduces forward, two backward, and
    two for recomputation; half as many if a block is missing or consists of experts, whose tokens
    are sent by all-to-all.

    Each transfers `2 s b h` bytes (Shoeybi et al. 2019, section 3). Sequence parallelism replaces
    each by an all-gather and a reduce-scatter with the same volume (Korthikanti et al. 2022,
    section 4.2.2).
    """
    exposed = np.minimum(strategies.parameters.exposed_tensor_parallel, 1.0)
    passes = 2.0 + strategies.recomputed_share
    passes = passes * np.where(strategies.flag("sequence_parallel"), exposed, 1.0)
    if strategies.of_equal_layers:
        return 2.0 * passes * tensor_all_reduce_time_s(strategies)
    shared = strategies.columns["shared_ffn_hidden_size"] > 0
    blocks = strategies.attention_share + strategies.mamba_share + strategies.dense_share
    count = passes * (blocks + np.where(shared, strategies.expert_share, 0.0))
    return count * tensor_all_reduce_time_s(strategies)


def tensor_all_reduce_time_s(strategies: Strategies) -> Array:
    """Return seconds of a ring all-reduce of a micro-batch's hidden state over the tensor-parallel
    group: `2 (t - 1)/t` of it over each link (Thakur et al. 2005)."""
    group, parameters = strategies.tensor_parallel, strategies.parameters
    rate = ring_bytes_per_s(
        strategies,
        group=group,
        stride=np.ones_like(group),
        network=parameters.inter_node_efficiency,
    )
    latency = parameters.collective_latency_s * np.log2(group)
    return 2.0 * (group - 1.0) / group * strategies.hidden_bytes / rate + latency


def context_parallel_time_s(strategies: Strategies, *, attention: tuple[Array, Array]) -> Array:
    """Return exposed seconds per layer and micro-batch of ring attention, once forward and twice
    backward (Liu et al. 2023, 'Ring Attention', section 3).

    While a part of keys and values is sent, attention to the previous part is computed. Of `c`
    parts all but the rank's own are received, so `(c - 1)/c` of the attention time can hide them.

    Args:
        attention: seconds of attention, forward and backward.
    """
    group = strategies.context_parallel
    rate = ring_bytes_per_s(
        strategies,
        group=group,
        stride=strategies.tensor_parallel,
        network=strategies.parameters.inter_node_efficiency,
    )
    keys_and_values = 2.0 * strategies.element_bytes * strategies.tokens * strategies.kv_size
    once = keys_and_values / strategies.tensor_parallel * (group - 1.0) / rate
    hiding = (group - 1.0) / group
    forward = np.maximum(once - hiding * attention[0], 0.0)
    backward = np.maximum(2.0 * once - hiding * attention[1], 0.0)
    return np.asarray(forward + backward)


OVERLAPPED = 0.5
"""Share of the all-to-all that stays exposed if another micro-batch's computation overlaps it
(Megatron-LM's `overlap_moe_expert_parallel_comm`)."""


def all_to_all_time_s(strategies: Strategies) -> Array:
    """Return seconds of sending a rank's tokens to their experts and returning the results, once.

    `Ts k h` elements each way, with the width `h` that experts receive. Of the EP ranks, `m` lie in
    the fast domain of a rank and are reached over its links. Over the network a token is sent once
    to each other domain with one of its experts: with `n = EP / m` domains and evenly chosen
    experts `(n - 1) (1 - (1 - 1/n)^k)` times (DeepEP, and NVIDIA's HybridEP, forward it within the
    domain). Links and network are used concurrently. Sharded experts (ETP) gather the tokens of
    their ranks.
    """
    columns, parameters, machine = strategies.columns, strategies.parameters, strategies.machine
    ep, etp, k = columns["expert_parallel"], columns["expert_tensor_parallel"], columns["top_k"]
    members = np.clip(np.floor(machine.fast_gpus / etp), 1.0, ep)
    domains = ep / members
    hidden = strategies.rank_tokens * strategies.expert_hidden_size * strategies.element_bytes
    efficiency = parameters.all_to_all_efficiency
    links = GIGA * machine.intra_node_gb_per_s * efficiency
    network = GIGA * machine.inter_node_gb_per_s * efficiency
    inside = k * (members - 1.0) / ep * hidden / links
    outside = (domains - 1.0) * (1.0 - (1.0 - 1.0 / domains) ** k) * hidden / network
    gathered = (etp - 1.0) * k * hidden / intra_node_bytes_per_s(strategies)
    latency = parameters.collective_latency_s * np.log2(ep)
    once = np.maximum(inside, outside) + gathered + latency
    overlapped = np.where(strategies.flag("overlapped_all_to_all"), OVERLAPPED, 1.0)
    exposed = overlapped * parameters.exposed_all_to_all
    return np.asarray(strategies.expert_load * exposed * 2.0 * once)


def pipeline_time_s(strategies: Strategies) -> Array:
    """Return seconds per micro-batch and stage: `2 s b h` bytes each way, for each virtual stage.

    Each rank of a tensor-parallel group sends its part, and the next stage gathers them within its
    node (Narayanan et al. 2021, section 4.1), unless sequence parallelism needs the part only. The
    slowest hop counts: the network, as soon as there are two nodes. With interleaving, part of the
    transfer overlaps the computation of another virtual stage.
    """
    machine, parameters = strategies.machine, strategies.parameters
    across = GIGA * machine.inter_node_gb_per_s * parameters.pipeline_efficiency
    inside = intra_node_bytes_per_s(strategies)
    rate = np.where(strategies.several_nodes, across, inside)
    t = strategies.tensor_parallel
    gathered = np.where(
        strategies.sequence_shards > 1, 0.0, (t - 1.0) / t * strategies.hidden_bytes
    )
    part = strategies.hidden_bytes / t
    hop = part / rate + gathered / inside + parameters.pipeline_latency_s
    interleaved = strategies.virtual_stages > 1
    exposed = np.where(interleaved, np.minimum(parameters.exposed_transfer, 1.0), 1.0)
    hops = 2.0 * strategies.virtual_stages * exposed
    return np.where(strategies.has_pipeline, hops * hop, 0.0)


def replica_ring_time_s(
    strategies: Strategies, *, parameters_of_rank: Array, group: Array, stride: Array | None = None
) -> Array:
    """Return seconds of one all-gather of the rank's weights, or one reduce-scatter of its
    gradients, over `group` replicas: `(d - 1)/d` of 2 bytes each (4 in fp32) over each link.

    Args:
        stride: distance in ranks between replicas; TP by default.
    """
    rate = ring_bytes_per_s(
        strategies,
        group=group,
        stride=strategies.tensor_parallel if stride is None else stride,
        network=strategies.parameters.data_parallel_efficiency,
    )
    return (group - 1.0) / group * strategies.element_bytes * parameters_of_rank / rate


@dataclass(frozen=True)
class Copies:
    """Replicated weights of a rank.

    Attributes:
        parameters: number of parameters on the rank.
        replicas: number of ranks that hold them before ZeRO, `stride` apart.
        shards: number of these that ZeRO shards over.
    """

    parameters: Array
    replicas: Array
    shards: Array
    stride: Array

    @classmethod
    def unrouted(cls, strategies: Strategies, parameters: Array) -> Copies:
        """Return the weights other than routed experts, which data-parallel and context-parallel
        ranks replicate."""
        stride = strategies.tensor_parallel
        return cls(parameters, strategies.replicas, strategies.zero_shards, stride)

    @classmethod
    def experts(cls, strategies: Strategies, parameters: Array) -> Copies:
        """Return the routed experts' weights, replicated on `world / (ETP EP PP)` ranks."""
        columns, shards = strategies.columns, strategies.expert_shards
        stride = columns["expert_tensor_parallel"] * columns["expert_parallel"]
        return cls(parameters, shards, shards, stride)

    def ring_time_s(self, strategies: Strategies, group: Array) -> Array:
        return replica_ring_time_s(
            strategies, parameters_of_rank=self.parameters, group=group, stride=self.stride
        )


def traffic_s(strategies: Strategies, copies: Copies) -> tuple[Array, Array]:
    """Return seconds of the replicas' traffic with every micro-batch, and once per step.

    With every micro-batch, stage 3 gathers the weights forward and again backward, unless a
    pipeline keeps them, and reduce-scatters the gradients, unless there is a pipeline; stage 2
    reduce-scatters the gradients (DeepSpeed, `stage_1_and_2.py`: partitioned gradients are reduced
    before the accumulation boundary). Once per step, stage 0 all-reduces the gradients; stage 1
    reduce-scatters them over all replicas and all-gathers the new weights over those that share
    them; stage 2 only all-gathers; stage 3 with a pipeline reduce-scatters, and gathers what it
    keeps.
    """
    stage, gathered_once = strategies.zero_stage, strategies.gathered_once
    over_all = copies.ring_time_s(strategies, copies.replicas)
    over_shards = copies.ring_time_s(strategies, copies.shards)
    of_weights = np.where((stage == 3) & ~gathered_once, 2.0, 0.0)
    of_gradients = (stage >= 2) & ~strategies.reduced_once
    gathered = np.where(stage == 0, over_all, over_shards)
    reduced = np.where(of_gradients, 0.0, over_all)
    once = reduced + np.where((stage < 3) | gathered_once, gathered, 0.0)
    return over_shards * (of_weights + of_gradients), once


def exposed_time_s(strategies: Strategies, traffic: Array, *, behind: Array) -> Array:
    """Return the exposed rest of `traffic` seconds after part of it overlapped `behind` seconds of
    computation."""
    exposed = np.minimum(strategies.parameters.exposed_data_parallel, 1.0)
    return traffic - (1.0 - exposed) * np.minimum(traffic, behind)


def replica_latency_s(strategies: Strategies) -> Array:
    """Return the latency of the replicas' collectives once per step, for each doubling of replicas
    beyond those of one node or rack."""
    near = strategies.machine.fast_gpus / strategies.tensor_parallel
    beyond = strategies.replicas / np.maximum(near, 1.0)
    return strategies.parameters.replica_step_s * np.log2(np.maximum(beyond, 1.0))


def straggling_share(strategies: Strategies) -> Array:
    """Return the share of a step spent waiting for the slowest node. It grows with each doubling of
    nodes, since the maximum of n normal deviations grows about as the logarithm of n."""
    nodes = strategies.columns["world_size"] / strategies.machine.gpus_per_node
    return strategies.parameters.straggling * np.log2(np.maximum(nodes, 1.0))
