"""Inputs of every term of the cost model: columns, machine and constants, and quantities derived
from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from autotune.cost_model.columns import (
    RECOMPUTED,
    RECOMPUTED_LAYERS,
    Array,
    Columns,
    Mask,
    Rows,
    distinct,
)
from autotune.cost_model.parameters import Constant, Parameters
from search_spaces.groups import ParallelGroups
from search_spaces.machine import NARROW_PEAKS, Machine
from search_spaces.stages import stage_layers

GIGA = 1e9
TERA = 1e12
GIB = 2.0**30

VOCABULARY_MULTIPLE = 128
"""Megatron pads the vocabulary to a multiple of this and of TP (`make-vocab-size-divisible-by`)."""


def total(parts: Mapping[str, Array]) -> Array:
    """Return the sum of all parts."""
    whole, *others = parts.values()
    own = False
    for part in others:
        # In place once the sum is a new array, since allocating one costs as much as the sum.
        fits = own and whole.ndim and part.shape in ((), whole.shape)
        whole = np.add(whole, part, out=whole if fits else None)
        own = True
    return whole


@dataclass(frozen=True, eq=False)
class StageLayers:
    """Layers of pipeline stages, without those of multi-token prediction.

    Attributes:
        first, last: of the stages with the embedding and with the logits.
        between: of the fullest other stage; that of the last where there are two.
        place: number of that stage, from 0.
    """

    first: Array
    last: Array
    between: Array
    place: Array

    @property
    def fullest(self) -> Array:
        return np.maximum(np.maximum(self.first, self.last), self.between)

    @classmethod
    def of(cls, columns: Columns, *, longer_first: bool = False) -> StageLayers:
        layers, stages = columns["num_layers"], columns["pipeline_parallel"]
        if not np.any(layers % (stages * columns["virtual_stages"])):
            each = np.asarray(layers / stages)
            return cls(first=each, last=each, between=each, place=np.ones(()))
        deciding = [columns[name] for name in DIVISION]
        rows, which = distinct(deciding, rows=len(columns))
        whole = np.stack([np.broadcast_to(each, len(columns))[rows] for each in deciding])
        ends = [_ends(*row, longer_first=longer_first) for row in whole.T.astype(int).tolist()]
        return cls(*np.array(ends).T[:, which])


DIVISION = ("num_layers", "pipeline_parallel", "virtual_stages", "mtp_layers")
"""Columns that decide how layers are divided over stages."""


def _ends(
    layers: int, stages: int, virtual_stages: int, mtp_layers: int, *, longer_first: bool
) -> tuple[float, ...]:
    each = stage_layers(layers, stages, virtual_stages=virtual_stages, mtp_layers=mtp_layers)
    if longer_first:
        each = tuple(sorted(each, reverse=True))
    between = each[1:-1] or each[-1:]
    return each[0], each[-1], max(between), 1 + between.index(max(between))


@dataclass(frozen=True, eq=False)
class Strategies:
    """Strategies on a machine.

    Columns have shape (n,), or () if all rows agree. Constants are numbers, or columns of shape (k,
    1) for k sets of them, for results of shape (k, n).
    """

    columns: Columns
    machine: Machine
    parameters: Parameters

    def take(self, rows: Rows | slice) -> Strategies:
        return Strategies(self.columns.take(rows), self.machine, self.parameters)

    def flag(self, name: str) -> Mask:
        return np.asarray(self.columns[name] > 0)

    def have(self, *names: str) -> bool:
        """Return whether any strategy has one of these columns above 0."""
        return any(self.columns[name].any() for name in names)

    @cached_property
    def groups(self) -> ParallelGroups:
        """The process groups of each strategy."""
        return ParallelGroups.of(self.columns.__getitem__, world_size=self.columns["world_size"])

    @property
    def tensor_parallel(self) -> Array:
        return self.columns["tensor_parallel"]

    @property
    def pipeline_parallel(self) -> Array:
        return self.columns["pipeline_parallel"]

    @property
    def context_parallel(self) -> Array:
        return self.columns["context_parallel"]

    @cached_property
    def replicas(self) -> Array:
        """Number of GPUs with the same weights before ZeRO: data parallel times context
        parallel."""
        return self.columns["data_parallel"] * self.context_parallel

    @cached_property
    def zero_shards(self) -> Array:
        """Number of GPUs that ZeRO shards over: the replicas, or a part of them."""
        return np.clip(self.columns["zero_shard_gpus"], 1.0, self.replicas)

    @property
    def micro_batches(self) -> Array:
        """Micro-batches per step, `gradient_accumulation_steps`."""
        return self.columns["gradient_accumulation_steps"]

    @property
    def virtual_stages(self) -> Array:
        return self.columns["virtual_stages"]

    @cached_property
    def interleaved(self) -> Mask:
        return np.asarray(self.virtual_stages > 1)

    @property
    def zero_stage(self) -> Array:
        return self.columns["zero_stage"]

    @cached_property
    def several_nodes(self) -> Mask:
        return np.asarray(self.columns["world_size"] > self.machine.gpus_per_node)

    @cached_property
    def has_pipeline(self) -> Mask:
        return np.asarray(self.pipeline_parallel > 1)

    @cached_property
    def gathered_once(self) -> Mask:
        """Whether ZeRO-3 gathers the weights of a pipeline's stage once per step and keeps them."""
        return np.asarray(self.reduced_once & bool(self.parameters.keeps_gathered))

    @cached_property
    def reduced_once(self) -> Mask:
        """Whether ZeRO-3 keeps gradients whole until the last micro-batch, as PyTorch's pipelines
        do (torch.distributed.pipelining, stage.py)."""
        return np.asarray((self.zero_stage == 3) & self.has_pipeline)

    @cached_property
    def sequence_shards(self) -> Array:
        """Number of shards of norms, dropouts and residuals: TP with sequence parallelism."""
        return np.where(self.flag("sequence_parallel"), self.tensor_parallel, 1.0)

    @cached_property
    def gated(self) -> Mask:
        return self.flag("gated_mlp")

    @cached_property
    def flash(self) -> Mask:
        return self.flag("flash_attention")

    @cached_property
    def full_checkpointing(self) -> Mask:
        return self.flag("full_checkpointing")

    @cached_property
    def recomputed_share(self) -> Array:
        """Share of the layers that full checkpointing recomputes: all, or the first ones of each
        virtual stage (Megatron-LM's `--recompute-method block`)."""
        full = self.full_checkpointing.astype(np.float64)
        if not self.recomputes_some:
            return full
        own = self.columns[RECOMPUTED_LAYERS]
        first = np.where(own > 0, own, self.parameters.recomputed_layers)
        chunks = self.pipeline_parallel * self.virtual_stages
        some = np.minimum(first * chunks / self.num_layers, 1.0)
        return full * np.where(first > 0, some, 1.0)

    @cached_property
    def recomputes_some(self) -> bool:
        """Whether full checkpointing may recompute some layers only."""
        return bool(self.parameters.recomputed_layers) or self.have(RECOMPUTED_LAYERS)

    @cached_property
    def selective_checkpointing(self) -> Mask:
        """Whether the attention is recomputed."""
        return self.flag("selective_checkpointing") & ~self.operation_checkpointing

    @cached_property
    def operation_checkpointing(self) -> Mask:
        """Whether every second matrix product and the attention are kept, and the rest is
        recomputed."""
        by_operation = bool(self.parameters.selective_by_operation)
        return self.flag("selective_checkpointing") & by_operation

    @cached_property
    def has_experts(self) -> Mask:
        """Whether layers have a mixture of experts instead of an MLP."""
        return self.flag("num_experts")

    @cached_property
    def any_experts(self) -> bool:
        return self.have("num_experts")

    @cached_property
    def latent(self) -> Mask:
        """Whether attention is multi-head latent attention (DeepSeek-V2)."""
        return self.flag("kv_rank")

    @cached_property
    def any_latent(self) -> bool:
        return self.have("kv_rank")

    @cached_property
    def any_mamba(self) -> bool:
        return self.have("mamba_layers")

    @cached_property
    def of_equal_layers(self) -> bool:
        """Whether all layers are those of GPT or Llama, and no module is recomputed separately."""
        kinds = ("num_experts", "kv_rank", "mamba_layers", "attention_gate")
        return not self.have(*kinds, *NARROW_PEAKS, *RECOMPUTED)

    @cached_property
    def mamba_share(self) -> Array:
        """Share of the layers with a Mamba-2 block or linear attention."""
        return self.columns["mamba_layers"] / self.num_layers

    @cached_property
    def attention_share(self) -> Array:
        """Share of the layers with attention: all, except in a hybrid."""
        own = self.columns["attention_layers"] / self.num_layers
        return np.where(self.columns["mamba_layers"] > 0, own, 1.0)

    @cached_property
    def single_blocks(self) -> Mask:
        """Whether a layer has one block: attention, Mamba-2 or an MLP."""
        return self.flag("single_blocks")

    @cached_property
    def expert_share(self) -> Array:
        """Share of the layers with experts: all except dense ones and other single blocks."""
        taken = np.where(self.single_blocks, self.mamba_share + self.attention_share, 0.0)
        own = 1.0 - taken - self.columns["dense_layers"] / self.num_layers
        return np.where(self.has_experts, own, 0.0)

    @cached_property
    def dense_share(self) -> Array:
        """Share of the layers with a dense MLP."""
        taken = np.where(self.single_blocks, self.mamba_share + self.attention_share, 0.0)
        return 1.0 - taken - self.expert_share

    @cached_property
    def blocks(self) -> Array:
        """Blocks per layer, each with its own norm: two, or one."""
        return np.where(self.single_blocks, 1.0, 2.0)

    @cached_property
    def mlp_share(self) -> Array:
        """Share of the layers without experts that have a dense MLP: 1, except where a layer has
        one block."""
        if not self.have("single_blocks"):
            return np.ones(())
        without = 1.0 - self.expert_share
        return np.where(without > 0, self.dense_share / np.where(without > 0, without, 1.0), 0.0)

    @cached_property
    def has_biases(self) -> Mask:
        """Whether the model has GPT-3's biases, LayerNorms and learned positions."""
        other = self.has_experts | self.latent | self.flag("mamba_layers")
        return ~(self.gated | other)

    @cached_property
    def expert_load(self) -> Constant:
        """Tokens of the slowest rank's experts against an even share: nothing above it where
        routing is balanced, twice as much where it is natural as where it is unknown."""
        uneven = self.columns["uneven_routing"] * self.parameters.uneven_routing
        return 1.0 + uneven * (self.parameters.expert_load - 1.0)

    @cached_property
    def fused_experts(self) -> Constant:
        """Whether the experts' grouped products apply the activation, and cast its result."""
        return np.maximum(self.columns["fused_experts"], self.parameters.fused_experts)

    @cached_property
    def rank_tokens(self) -> Array:
        """Tokens of a micro-batch on one rank, divided by sequence parallelism."""
        return self.tokens / self.sequence_shards

    @cached_property
    def routed_tokens(self) -> Array:
        """Copies of a rank's own tokens sent to experts, `Ts k`."""
        return self.rank_tokens * self.columns["top_k"]

    @cached_property
    def expert_hidden_size(self) -> Array:
        """Width of the tokens that routed experts receive."""
        latent = self.columns["expert_latent_size"]
        return np.where(latent > 0, latent, self.hidden_size)

    @cached_property
    def expert_shards(self) -> Array:
        """Number of GPUs with the same experts, over which ZeRO shards their states."""
        return np.asarray(np.maximum(self.groups.expert_shards, 1.0))

    def without_recomputation(self) -> Strategies:
        """Return the same strategies without recomputed modules; `self` if there are none."""
        if not self.have(*RECOMPUTED):
            return self
        values = {**self.columns.values, **dict.fromkeys(RECOMPUTED, np.zeros(()))}
        return Strategies(replace(self.columns, values=values), self.machine, self.parameters)

    @cached_property
    def element_bytes(self) -> Array:
        """Bytes of a weight or an activation: 4 in fp32, otherwise 2; fp8 affects products only."""
        return np.where(self.flag("fp32"), 4.0, 2.0)

    @property
    def hidden_size(self) -> Array:
        return self.columns["hidden_size"]

    @property
    def ffn_hidden_size(self) -> Array:
        return self.columns["ffn_hidden_size"]

    @property
    def num_layers(self) -> Array:
        return self.columns["num_layers"]

    @property
    def seq_length(self) -> Array:
        return self.columns["seq_length"]

    @property
    def head_width(self) -> Array:
        return self.columns["head_width"]

    @cached_property
    def query_size(self) -> Array:
        """Width of the queries over all heads."""
        return self.columns["num_attention_heads"] * self.head_width

    @cached_property
    def score_width(self) -> Array:
        """Mean width of queries and values over all heads, which score and sum each pair of tokens.
        They differ with latent attention."""
        if not self.any_latent:
            return self.query_size
        columns = self.columns
        head = (columns["qk_head_dim"] + columns["rope_head_dim"] + columns["v_head_dim"]) / 2.0
        return np.where(self.latent, columns["num_attention_heads"] * head, self.query_size)

    @cached_property
    def kv_size(self) -> Array:
        """Width of the keys over all query groups."""
        return self.columns["num_query_groups"] * self.head_width

    @cached_property
    def padded_vocabulary(self) -> Array:
        """Padded vocabulary entries of one tensor-parallel rank."""
        multiple = VOCABULARY_MULTIPLE * self.tensor_parallel
        whole = np.ceil(self.columns["vocab_size"] / multiple) * multiple
        return whole / self.tensor_parallel

    @cached_property
    def layer_parameters(self) -> Array:
        """Weights of one layer on one tensor-parallel rank, without norms and biases."""
        h = self.hidden_size
        attention = h * (2.0 * self.query_size + 2.0 * self.kv_size)
        mlp = np.where(self.gated, 3.0, 2.0) * h * self.ffn_hidden_size
        return (attention + mlp) / self.tensor_parallel

    @cached_property
    def tokens(self) -> Array:
        """Tokens of one micro-batch on one rank, `s x b`, divided by context parallelism."""
        return self.columns["micro_batch_size"] * self.seq_length / self.context_parallel

    @cached_property
    def hidden_elements(self) -> Array:
        """Elements of one micro-batch's hidden state on one rank, divided by sequence
        parallelism."""
        return self.tokens * self.hidden_size / self.sequence_shards

    @cached_property
    def hidden_bytes(self) -> Array:
        """Bytes of one micro-batch's hidden state, `2 s b h` in 16 bits."""
        return self.element_bytes * self.tokens * self.hidden_size

    @cached_property
    def stages(self) -> StageLayers:
        """How the layers are divided over the pipeline."""
        longer_first = bool(self.parameters.longer_stages_first)
        return StageLayers.of(self.columns, longer_first=longer_first)

    @cached_property
    def uneven(self) -> Mask:
        """Whether stages hold different numbers of layers."""
        return np.asarray(self.stages.fullest * self.pipeline_parallel != self.num_layers)

    @cached_property
    def peak_flops(self) -> Constant:
        """16-bit (or fp32) FLOP/s by data sheet; nominal on CPUs."""
        tera = self.machine.peak_tflops or self.parameters.nominal_tflops
        return TERA * tera * np.where(self.flag("fp32"), self.parameters.fp32_rate, 1.0)

    @cached_property
    def narrow(self) -> Mask:
        """Whether linear layers multiply in 8 or 4 bits."""
        return np.asarray(self.flag("fp8") | self.flag("mxfp8") | self.flag("nvfp4"))

    @cached_property
    def any_narrow(self) -> bool:
        return self.have(*NARROW_PEAKS)

    @cached_property
    def elements_at_once(self) -> Array:
        """Elements that matrix units multiply in the time of one 16-bit element."""
        if not self.any_narrow:
            return np.ones(())
        return np.where(self.flag("nvfp4"), 4.0, np.where(self.narrow, 2.0, 1.0))

    @cached_property
    def wide_gemm_flops(self) -> Constant:
        """FLOP/s of large aligned matrix products in 16 bits (or fp32)."""
        return self.peak_flops * self.parameters.gemm_efficiency

    @cached_property
    def gemm_flops(self) -> Constant:
        """The same in the strategies' precision, by the machine's peak for it."""
        if not self.any_narrow:
            return self.wide_gemm_flops
        eight, four = self.parameters.fp8_gain, self.parameters.fp4_gain
        rate: Constant = np.ones(())
        for precision, gain in (("fp8", eight), ("mxfp8", eight), ("nvfp4", four)):
            rate = np.where(self.flag(precision), gain * self.machine.narrow_gain(precision), rate)
        return self.wide_gemm_flops * rate

    @cached_property
    def memory_bytes_per_s(self) -> Constant:
        """Bytes per second that streaming kernels reach."""
        efficiency = self.parameters.memory_efficiency
        return GIGA * self.machine.memory_bandwidth_gb_per_s * efficiency
