"""A strategy as the command-line arguments of Megatron-DeepSpeed's entry script.

The names are those that `megatron/arguments.py` of each variant declares.
"""

from __future__ import annotations

import shlex

from evaluators.cluster.profile import MegatronVariant
from evaluators.frameworks.megatron import Argument, embeddings, layout, one_a_line, shape
from evaluators.frameworks.megatron_deepspeed.variants import (
    VARIANTS,
    Variant,
    check,
    uses_deepspeed,
)
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

# The main line's entry script always reads this attribute, which is set under --deepspeed alone.
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
        flash_attention: the option of the checkout that chooses FlashAttention, where the variant
            has several; without it the oldest of them, which all checkouts have.

    Raises:
        InvalidInput: this variant of Megatron-DeepSpeed cannot run this strategy or this model.
    """
    check(transformer, strategy, variant)
    virtual_stages: list[Argument] = []
    if strategy.virtual_stages > 1:
        chunks = strategy.pipeline_parallel * strategy.virtual_stages
        layers = transformer.num_layers // chunks
        virtual_stages = [
            ("--num-layers-per-virtual-pipeline-stage", str(layers)),
            # Each layer is asked for its experts by its number in the whole model, in a list of one
            # stage's layers (IndexError on the main branch): this says that no layer has any.
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
        *layout(machine, strategy),
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
    """Return one option a line, with `--deepspeed_config` where DeepSpeed is used.

    Its file is `ds_config.json`. A launcher passes the arguments on with `$(cat …)`.

    Raises:
        InvalidInput: this variant of Megatron-DeepSpeed cannot run this strategy or this model.
    """
    chosen = arguments(transformer, machine, strategy, variant, flash_attention=flash_attention)
    if uses_deepspeed(strategy):
        chosen.append(("--deepspeed_config", "ds_config.json"))
    return one_a_line(chosen)


def entry_words(
    variant: MegatronVariant, strategy: Strategy, *, python: str, script: str
) -> tuple[str, ...]:
    """Return words of bash that start the entry script, with what its variant needs besides.

    Args:
        python, script: words of bash themselves.
    """
    words = [python, script]
    if VARIANTS[variant].reads_unset_config and not uses_deepspeed(strategy):
        words[1:1] = ["-c", shlex.quote(_WITHOUT_DEEPSPEED)]
    if VARIANTS[variant].master_address:
        words += ["--master-addr", '"$MASTER_ADDR"']
    return tuple(words)


def null_vocabulary(transformer: Transformer) -> int:
    """Return what to ask the null tokenizer for: it adds one entry, the end of a document."""
    return transformer.vocab_size - 1


def _model(transformer: Transformer, variant: Variant) -> list[Argument]:
    t = transformer
    model = shape(t)
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
    return model + embeddings(t)


def _activations(strategy: Strategy) -> list[Argument]:
    """Return the recomputation, which DeepSpeed's engine takes by the older options."""
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
    """Return the engine; where `--deepspeed_config` lies is known to the launcher alone."""
    if not uses_deepspeed(strategy):
        return [("--use-distributed-optimizer",)] if strategy.zero_stage == 1 else []
    engine: list[Argument] = [("--deepspeed",), ("--zero-stage", str(strategy.zero_stage))]
    # DeepSpeed refuses ZeRO 2 and 3 in its pipeline engine, even with one stage.
    return [*engine, ("--no-pipeline-parallel",)] if strategy.zero_stage >= 2 else engine
