"""The lines of Megatron-DeepSpeed: what they differ in, and what one has no words for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evaluators.cluster.profile import MegatronVariant
from search_spaces.errors import InvalidInput
from search_spaces.program import lacking, untrained
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

VARIED = (
    "tensor_parallel",
    "pipeline_parallel",
    "micro_batch_size",
    "gradient_accumulation_steps",
    "zero_stage",
    "num_nodes",
    "activation_checkpointing",
    "sequence_parallel",
    "flash_attention",
    "virtual_stages",
    "precision",
)
"""The dimensions that Megatron-DeepSpeed's arguments say."""

FLASH_ATTENTION_2 = "--use-flash-attn-v2"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One line of Megatron-DeepSpeed.

    Attributes:
        script: the entry script, at the top of the checkout.
        flash_attention: the options that choose FlashAttention, its newest version first; a
            checkout has one of them or more (`flash_attention_option`).
        llama: whether it has RMSNorm and a gated MLP of any width.
        query_groups: whether heads may share keys and values.
        uneven_stages: whether a pipeline's stages may have different numbers of layers: DeepSpeed
            cuts the model by the type of its layers, from 0.12.5 on into stages that differ by one;
            before, a stage could be left without any.
        reads_unset_config: whether its entry script reads `deepspeed_config_dict` without
            --deepspeed too, where nothing has set it.
        master_address: whether --master-addr must be given: ranks come from MPI, and the address
            that they meet at from this option alone.
        tokenizers: those that a GPT can be trained with.
    """

    name: MegatronVariant
    script: str
    flash_attention: tuple[str, ...]
    llama: bool
    query_groups: bool
    uneven_stages: bool
    reads_unset_config: bool
    master_address: bool
    tokenizers: tuple[str, ...]


_TOKENIZERS = (
    "GPT2BPETokenizer",
    "SentencePieceTokenizer",
    "GPTSentencePieceTokenizer",
    "NullTokenizer",
)

VARIANTS: Mapping[MegatronVariant, Variant] = {
    "main": Variant(
        name="main",
        script="pretrain_gpt.py",
        flash_attention=(FLASH_ATTENTION_2,),
        llama=True,
        query_groups=True,
        uneven_stages=True,
        reads_unset_config=True,
        master_address=False,
        tokenizers=(*_TOKENIZERS, "HFTokenizer"),
    ),
    "ornl": Variant(
        name="ornl",
        script="pretrain_gpt_deepspeed.py",
        flash_attention=(FLASH_ATTENTION_2, "--use-flash-attn"),
        llama=False,
        query_groups=False,
        uneven_stages=False,
        reads_unset_config=False,
        master_address=True,
        tokenizers=_TOKENIZERS,
    ),
}


def check(transformer: Transformer, strategy: Strategy, variant: MegatronVariant) -> None:
    """Refuse what the variant cannot train.

    Raises:
        InvalidInput: with the field of the strategy or of the model that stands in the way.
    """
    line = VARIANTS[variant]
    for lack in lacking("Megatron-DeepSpeed", VARIED):
        if lack.meets(strategy):
            raise InvalidInput(lack.dimension, strategy.value(lack.dimension), lack.because)
    _check_model(transformer, variant)
    if transformer.num_layers % strategy.pipeline_parallel and not line.uneven_stages:
        raise InvalidInput(
            "pipeline_parallel",
            strategy.pipeline_parallel,
            f"{transformer.num_layers} layers make uneven stages, and the DeepSpeed of the "
            f"{variant} fork's time may leave one of them empty",
            valid=f"a divisor of {transformer.num_layers}, or megatron.variant 'main'",
        )
    if strategy.virtual_stages > 1 and strategy.pipeline_parallel <= 2:
        raise InvalidInput(
            "virtual_stages",
            strategy.virtual_stages,
            "Megatron-DeepSpeed interleaves only pipelines of more than 2 stages",
            valid="1, or pipeline_parallel of 3 or more",
        )
    if strategy.virtual_stages > 1 and strategy.zero_stage > 1:
        raise InvalidInput(
            "zero_stage",
            strategy.zero_stage,
            "interleaved pipelines run on Megatron's own engine, which has ZeRO 0 and 1 alone",
            valid="0 or 1",
        )


def _check_model(transformer: Transformer, variant: MegatronVariant) -> None:
    line = VARIANTS[variant]
    if reason := untrained(transformer, program="Megatron-DeepSpeed"):
        raise InvalidInput("model", transformer.name, reason)
    if transformer.gated_mlp and not line.llama:
        raise InvalidInput(
            "gated_mlp",
            True,
            f"the {variant} fork of Megatron-DeepSpeed has no RMSNorm, and its --swiglu "
            "chooses the width of the MLP itself",
            valid="a model without a gated MLP, or megatron.variant 'main'",
        )
    groups, heads = transformer.num_query_groups, transformer.num_attention_heads
    if groups != heads and not line.query_groups:
        raise InvalidInput(
            "num_query_groups",
            groups,
            f"the {variant} fork of Megatron-DeepSpeed has no grouped queries",
            valid=f"{heads} (one for each head), or megatron.variant 'main'",
        )


def uses_deepspeed(strategy: Strategy) -> bool:
    """Return whether DeepSpeed's engine runs the strategy, and not Megatron's own.

    DeepSpeed's pipeline knows no interleaving (it would train the first virtual stage alone), so
    virtual stages need Megatron's schedules, which ZeRO 0 and 1 have a counterpart for.
    """
    return strategy.virtual_stages == 1
