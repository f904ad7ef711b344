"""A strategy as arguments of Megatron-LM's `pretrain_gpt.py`, whose engine is Megatron Core."""

from __future__ import annotations

from collections.abc import Mapping

from evaluators.frameworks.megatron import Argument, embeddings, layout, one_a_line, shape
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine
from search_spaces.program import stage_layers
from search_spaces.strategy import Strategy
from search_spaces.transformer import ActivationCheckpointing, Transformer


def _megatron_fsdp(sharded: str) -> tuple[Argument, ...]:
    """Return the arguments of Megatron-FSDP; `sharded` is divided over the data-parallel ranks."""
    return (
        ("--use-megatron-fsdp",),
        ("--data-parallel-sharding-strategy", sharded),
        ("--ckpt-format", "fsdp_dtensor"),
    )


SHARDING: Mapping[int, tuple[Argument, ...]] = {
    0: (),
    1: (("--use-distributed-optimizer",),),
    2: _megatron_fsdp("optim_grads"),
    3: _megatron_fsdp("optim_grads_params"),
}
"""The arguments of each ZeRO stage."""

RECOMPUTATION: Mapping[ActivationCheckpointing, tuple[Argument, ...]] = {
    "none": (),
    "selective": (("--recompute-granularity", "selective"),),
    "full": (
        ("--recompute-granularity", "full"),
        ("--recompute-method", "uniform"),
        ("--recompute-num-layers", "1"),
    ),
}
"""The arguments of each kind of activation checkpointing."""


def arguments(transformer: Transformer, machine: Machine, strategy: Strategy) -> list[Argument]:
    """Return the arguments of model and layout, without data, tokenizer and schedule.

    The number of nodes is the launcher's: Megatron-LM takes as many ranks as it is started with.

    Raises:
        InvalidInput: Megatron-LM has no words for this strategy.
    """
    check(strategy)
    virtual_stages: list[Argument] = []
    if strategy.virtual_stages > 1:
        option = "--num-virtual-stages-per-pipeline-rank"
        virtual_stages.append((option, str(strategy.virtual_stages)))
    # FlashAttention has 16-bit kernels alone.
    sixteen_bit = strategy.precision != "fp32"
    precision: list[Argument] = [(f"--{strategy.precision}",)] if sixteen_bit else []
    attention = "flash" if sixteen_bit and strategy.flash_attention else "unfused"
    return [
        *_model(transformer),
        *layout(machine, strategy),
        *virtual_stages,
        *_uneven_stages(transformer, strategy),
        *RECOMPUTATION[strategy.activation_checkpointing],
        *precision,
        ("--attention-backend", attention),
        *SHARDING[strategy.zero_stage],
    ]


def arguments_text(transformer: Transformer, machine: Machine, strategy: Strategy) -> str:
    """Return one option a line; a launcher passes them on with `$(cat megatron_lm_args.txt)`.

    Raises:
        InvalidInput: Megatron-LM has no words for this strategy.
    """
    return one_a_line(arguments(transformer, machine, strategy))


def check(strategy: Strategy) -> None:
    """Refuse what Megatron-LM has no words for; raises InvalidInput."""
    if strategy.zero_stage >= 2 and strategy.pipeline_parallel > 1:
        raise InvalidInput(
            "zero_stage",
            strategy.zero_stage,
            "gradients sharded by Megatron-FSDP are not written for pipelines here",
            valid="0 or 1, or pipeline_parallel 1",
        )


def _uneven_stages(transformer: Transformer, strategy: Strategy) -> list[Argument]:
    """Return the layers of each stage where they differ: an E for the embedding, a t for each
    layer, an L for the loss. Spelt out, as a shell takes a `*` for names of files."""
    stages = strategy.pipeline_parallel
    if transformer.num_layers % stages == 0:
        return []
    layers = "|".join("t" * count for count in stage_layers(transformer.num_layers, stages))
    return [("--pipeline-model-parallel-layout", f"E{layers}L")]


def _model(transformer: Transformer) -> list[Argument]:
    t = transformer
    model = shape(t)
    if t.num_query_groups != t.num_attention_heads:
        model += [("--group-query-attention",), ("--num-query-groups", str(t.num_query_groups))]
    if t.gated_mlp:
        model += [
            ("--swiglu",),
            ("--normalization", "RMSNorm"),
            ("--position-embedding-type", "rope"),
            ("--disable-bias-linear",),
        ]
    return model + embeddings(t)
