"""A strategy as the command-line arguments of Megatron-DeepSpeed's entry script, by variant.

The names are those that `megatron/arguments.py` of each variant declares.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from evaluators.cluster.profile import MegatronVariant
from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine
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
"""The dimensions that Megatron-DeepSpeed's arguments can express."""

FLASH_ATTENTION_2 = "--use-flash-attn-v2"
WIDEST_HEAD = 128
"""Of FlashAttention 1; a head's width is a multiple of 8 there."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One line of Megatron-DeepSpeed.

    Attributes:
        script: the entry script, at the top of the checkout.
        flash_attention: the options that select FlashAttention, its newest version first; a
            checkout has at least one of them (`flash_attention_option`).
        llama: whether it has RMSNorm and a gated MLP of any width.
        query_groups: whether heads may share keys and values.
        uneven_stages: whether a pipeline's stages may have different numbers of layers. DeepSpeed
            divides the model by the type of its layers, since 0.12.5 into stages that differ by at
            most one; before, a stage could be empty.
        reads_unset_config: whether its entry script reads `deepspeed_config_dict` even without
            --deepspeed, which sets it.
        master_address: whether --master-addr is required, since ranks come from MPI.
        tokenizers: tokenizers that a GPT can be trained with.
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


@dataclass(frozen=True, kw_only=True)
class HeadWidthRefusal:
    """Strategies whose heads FlashAttention 1 has no kernel for."""

    dimensions: tuple[str, ...] = ("flash_attention", "precision")
    because: str = (
        "FlashAttention 1, which --use-flash-attn selects, takes heads whose width is a multiple "
        f"of 8 and at most {WIDEST_HEAD}: flash_attention must be false"
    )

    def refuses(
        self,
        strategy: Strategy,
        transformer: Transformer,
        machine: Machine | None = None,  # noqa: ARG002
    ) -> bool:
        width = transformer.head_width
        fits = width % 8 == 0 and width <= WIDEST_HEAD
        return strategy.flash_attention and strategy.precision != "fp32" and not fits


def narrow_kernels(variant: MegatronVariant, flash_attention: str) -> tuple[HeadWidthRefusal, ...]:
    """Return what the FlashAttention of a checkout cannot compute; without its option, what the
    variant's oldest cannot."""
    option = flash_attention or VARIANTS[variant].flash_attention[-1]
    return () if option == FLASH_ATTENTION_2 else (HeadWidthRefusal(),)


def check(
    transformer: Transformer,
    strategy: Strategy,
    variant: MegatronVariant,
    flash_attention: str = "",
) -> None:
    """Check that the variant can train the model with the strategy.

    Args:
        flash_attention: see `arguments`.

    Raises:
        InvalidInput: it cannot; with the field of the strategy or of the model.
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
    for narrow in narrow_kernels(variant, flash_attention):
        if narrow.refuses(strategy, transformer):
            reason = f"{narrow.because} (the model has {transformer.head_width})"
            valid = "false, or a clone with --use-flash-attn-v2"
            raise InvalidInput("flash_attention", True, reason, valid=valid)
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
    """Return whether DeepSpeed's engine runs the strategy, not Megatron's.

    DeepSpeed's pipeline has no interleaving (it would only train the first virtual stage), so
    virtual stages need Megatron's schedules, which have counterparts of ZeRO 0 and 1.
    """
    return strategy.virtual_stages == 1


Argument = tuple[str, ...]
"""One option with its values: `("--num-layers", "48")` or `("--swiglu",)`."""


# The main line's entry script always reads this attribute, which only --deepspeed sets.
_WITHOUT_DEEPSPEED = """import argparse, os, runpy, sys
argparse.Namespace.deepspeed_config_dict = None
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")"""


def arguments(
    transformer: Transformer,
    machine: Machine,
    strategy: Strategy,
    variant: MegatronVariant = "main",
    *,
    flash_attention: str = "",
) -> list[Argument]:
    """Return the arguments of model and layout, without data, tokenizer and schedule.

    Args:
        flash_attention: the checkout's option that selects FlashAttention, if the variant has
            several; by default the oldest, which all checkouts have.

    Raises:
        InvalidInput: this variant of Megatron-DeepSpeed cannot run this strategy or this model.
    """
    check(transformer, strategy, variant, flash_attention)
    virtual_stages: list[Argument] = []
    if strategy.virtual_stages > 1:
        chunks = strategy.pipeline_parallel * strategy.virtual_stages
        layers = transformer.num_layers // chunks
        virtual_stages = [
            ("--num-layers-per-virtual-pipeline-stage", str(layers)),
            # The main branch looks up a layer's experts by its number in the whole model, in a list
            # of one stage's layers (IndexError). With this, no layer has experts.
            ("--expert-interval", str(transformer.num_layers + 1)),
        ]
    # The fusion is off in the source, but its option, on by default, still demands Apex.
    kernels: list[Argument] = [("--no-gradient-accumulation-fusion",)]
    if strategy.precision != "fp32":
        kernels.append((f"--{strategy.precision}",))
        if strategy.flash_attention:  # with fp32 the option would end the run
            kernels.append((flash_attention or VARIANTS[variant].flash_attention[-1],))
    return [
        *_model(transformer, VARIANTS[variant]),
        *_layout(machine, strategy),
        *virtual_stages,
        *_activations(strategy),
        *kernels,
        *_engine(strategy),
    ]


def arguments_text(
    transformer: Transformer,
    machine: Machine,
    strategy: Strategy,
    variant: MegatronVariant = "main",
    *,
    flash_attention: str = "",
) -> str:
    """Return one option per line, with `--deepspeed_config ds_config.json` if DeepSpeed is used.

    A launcher passes the arguments on with `$(cat …)`.

    Raises:
        InvalidInput: this variant of Megatron-DeepSpeed cannot run this strategy or this model.
    """
    chosen = arguments(transformer, machine, strategy, variant, flash_attention=flash_attention)
    if uses_deepspeed(strategy):
        chosen.append(("--deepspeed_config", "ds_config.json"))
    return "".join(" ".join(argument) + "\n" for argument in chosen)


def entry_words(
    variant: MegatronVariant, strategy: Strategy, *, python: str, script: str
) -> tuple[str, ...]:
    """Return words of bash that start the entry script of this variant.

    Args:
        python, script: words of bash.
    """
    words = [python, script]
    if VARIANTS[variant].reads_unset_config and not uses_deepspeed(strategy):
        words[1:1] = ["-c", shlex.quote(_WITHOUT_DEEPSPEED)]
    if VARIANTS[variant].master_address:
        words += ["--master-addr", '"$MASTER_ADDR"']
    return tuple(words)


def null_vocabulary(transformer: Transformer) -> int:
    return transformer.vocab_size - 1


def _model(transformer: Transformer, variant: Variant) -> list[Argument]:
    t = transformer
    model: list[Argument] = [
        ("--num-layers", str(t.num_layers)),
        ("--hidden-size", str(t.hidden_size)),
        ("--ffn-hidden-size", str(t.ffn_hidden_size)),
        ("--num-attention-heads", str(t.num_attention_heads)),
        *([("--kv-channels", str(t.head_dim))] if t.head_dim else []),
        ("--seq-length", str(t.seq_length)),
        ("--max-position-embeddings", str(t.seq_length)),
        ("--attention-dropout", "0"),
        ("--hidden-dropout", "0"),
    ]
    if variant.query_groups:
        model.append(("--num-key-value-heads", str(t.num_query_groups)))
    if t.gated_mlp:
        model += [
            ("--swiglu",),
            ("--normalization", "rmsnorm"),
            ("--use-rotary-position-embeddings",),
            ("--disable-bias-linear",),
            ("--no-query-key-layer-scaling",),
        ]
    if not t.tied_embeddings:
        model.append(("--untie-embeddings-and-output-weights",))
    return model


def _layout(machine: Machine, strategy: Strategy) -> list[Argument]:
    divided: list[Argument] = [
        ("--tensor-model-parallel-size", str(strategy.tensor_parallel)),
        ("--pipeline-model-parallel-size", str(strategy.pipeline_parallel)),
        ("--micro-batch-size", str(strategy.micro_batch_size)),
        ("--global-batch-size", str(strategy.global_batch_size(machine.gpus_per_node))),
    ]
    return [*divided, ("--sequence-parallel",)] if strategy.sequence_parallel else divided


def _activations(strategy: Strategy) -> list[Argument]:
    match strategy.activation_checkpointing:
        case "none":
            return []
        case "selective":
            return [("--recompute-granularity", "selective")]
        case "full" if uses_deepspeed(strategy):
            return [("--checkpoint-activations",), ("--deepspeed-activation-checkpointing",)]
        case _:
            return [("--recompute-granularity", "full"), ("--recompute-method", "uniform")]


def _engine(strategy: Strategy) -> list[Argument]:
    if not uses_deepspeed(strategy):
        return [("--use-distributed-optimizer",)] if strategy.zero_stage == 1 else []
    engine: list[Argument] = [("--deepspeed",), ("--zero-stage", str(strategy.zero_stage))]
    # DeepSpeed refuses ZeRO 2 and 3 in its pipeline engine, even with one stage.
    return [*engine, ("--no-pipeline-parallel",)] if strategy.zero_stage >= 2 else engine
