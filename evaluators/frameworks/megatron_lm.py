"""A strategy as arguments of Megatron-LM's `pretrain_gpt.py`, whose engine is Megatron Core."""

from __future__ import annotations

from evaluators.frameworks.megatron import Argument, embeddings, layout, one_a_line, shape
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

_SHARDED = {2: "optim_grads", 3: "optim_grads_params"}
"""ZeRO 2 and 3 are Megatron-FSDP's: what is sharded over the data-parallel ranks."""


def arguments(transformer: Transformer, machine: Machine, strategy: Strategy) -> list[Argument]:
    """Return the arguments of model and layout, without data, tokenizer and schedule.

    The number of nodes is the launcher's: Megatron-LM takes as many ranks as it is started with.

    Raises:
        InvalidInput: Megatron-LM has no words for this strategy.
    """
    check(strategy)
    groups = [
        _model(transformer),
        _layout(machine, strategy),
        _activations(strategy),
        _kernels(strategy),
        _sharding(strategy),
    ]
    return [argument for group in groups for argument in group]


def arguments_text(transformer: Transformer, machine: Machine, strategy: Strategy) -> str:
    """Return one option a line; a launcher passes them on with `$(cat megatron_lm_args.txt)`.

    Raises:
        InvalidInput: Megatron-LM has no words for this strategy.
    """
    return one_a_line(arguments(transformer, machine, strategy))


def check(strategy: Strategy) -> None:
    """Refuse what Megatron-LM has no words for; raises InvalidInput."""
    if strategy.zero_stage in _SHARDED and strategy.pipeline_parallel > 1:
        raise InvalidInput(
            "zero_stage",
            strategy.zero_stage,
            "gradients sharded by Megatron-FSDP are not written for pipelines here",
            valid="0 or 1, or pipeline_parallel 1",
        )


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


def _layout(machine: Machine, strategy: Strategy) -> list[Argument]:
    divided = layout(machine, strategy)
    if strategy.virtual_stages > 1:
        divided.append(("--num-virtual-stages-per-pipeline-rank", str(strategy.virtual_stages)))
    return divided


def _activations(strategy: Strategy) -> list[Argument]:
    match strategy.activation_checkpointing:
        case "none":
            return []
        case "selective":
            return [("--recompute-granularity", "selective")]
        case "full":
            return [
                ("--recompute-granularity", "full"),
                ("--recompute-method", "uniform"),
                ("--recompute-num-layers", "1"),
            ]


def _kernels(strategy: Strategy) -> list[Argument]:
    """Return precision and attention; FlashAttention has 16-bit kernels alone."""
    if strategy.precision == "fp32":
        return [("--attention-backend", "unfused")]
    backend = "flash" if strategy.flash_attention else "unfused"
    return [(f"--{strategy.precision}",), ("--attention-backend", backend)]


def _sharding(strategy: Strategy) -> list[Argument]:
    match strategy.zero_stage:
        case 0:
            return []
        case 1:
            return [("--use-distributed-optimizer",)]
        case stage:
            return [
                ("--use-megatron-fsdp",),
                ("--data-parallel-sharding-strategy", _SHARDED[stage]),
                ("--ckpt-format", "fsdp_dtensor"),
            ]
