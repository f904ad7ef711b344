"""A strategy as the command-line arguments of Megatron-DeepSpeed's `pretrain_gpt.py`.

The names are those of its main branch, `megatron/arguments.py`.
"""

from __future__ import annotations

from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

Argument = tuple[str, ...]
"""One option with its values: `("--num-layers", "48")` or `("--swiglu",)`."""


def uses_deepspeed(strategy: Strategy) -> bool:
    """Whether DeepSpeed's engine runs the strategy, or Megatron's own.

    DeepSpeed's pipeline knows no interleaving (it would train the first virtual stage alone), so
    virtual stages need Megatron's schedules, which ZeRO 0 and 1 have a counterpart for.
    """
    return strategy.virtual_stages == 1


def arguments(transformer: Transformer, machine: Machine, strategy: Strategy) -> list[Argument]:
    """The arguments of the model and of its layout, without data, tokenizer and schedule.

    Raises:
        InvalidInput: Megatron-DeepSpeed cannot run this strategy.
    """
    _check(strategy)
    groups = [
        _model(transformer),
        _layout(transformer, machine, strategy),
        _activations(strategy),
        _kernels(strategy),
        _engine(strategy),
    ]
    return [argument for group in groups for argument in group]


def arguments_text(transformer: Transformer, machine: Machine, strategy: Strategy) -> str:
    """One option a line, with `--deepspeed_config ds_config.json` where DeepSpeed is used.

    A launcher passes them on with `$(cat megatron_deepspeed_args.txt)`.

    Raises:
        InvalidInput: Megatron-DeepSpeed cannot run this strategy.
    """
    chosen = arguments(transformer, machine, strategy)
    if uses_deepspeed(strategy):
        chosen.append(("--deepspeed_config", "ds_config.json"))
    return "".join(" ".join(argument) + "\n" for argument in chosen)


def _check(strategy: Strategy) -> None:
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


def _model(transformer: Transformer) -> list[Argument]:
    t = transformer
    shape: list[Argument] = [
        ("--num-layers", str(t.num_layers)),
        ("--hidden-size", str(t.hidden_size)),
        ("--ffn-hidden-size", str(t.ffn_hidden_size)),
        ("--num-attention-heads", str(t.num_attention_heads)),
        ("--num-key-value-heads", str(t.num_query_groups)),
        ("--seq-length", str(t.seq_length)),
        ("--max-position-embeddings", str(t.seq_length)),
        ("--attention-dropout", "0"),
        ("--hidden-dropout", "0"),
    ]
    if t.gated_mlp:
        shape += [
            ("--swiglu",),
            ("--normalization", "rmsnorm"),
            ("--use-rotary-position-embeddings",),
            ("--disable-bias-linear",),
            ("--no-query-key-layer-scaling",),
        ]
    return shape if t.tied_embeddings else [*shape, ("--untie-embeddings-and-output-weights",)]


def _layout(transformer: Transformer, machine: Machine, strategy: Strategy) -> list[Argument]:
    layout: list[Argument] = [
        ("--tensor-model-parallel-size", str(strategy.tensor_parallel)),
        ("--pipeline-model-parallel-size", str(strategy.pipeline_parallel)),
        ("--micro-batch-size", str(strategy.micro_batch_size)),
        ("--global-batch-size", str(strategy.global_batch_size(machine.gpus_per_node))),
    ]
    if strategy.sequence_parallel:
        layout.append(("--sequence-parallel",))
    if strategy.virtual_stages > 1:
        chunks = strategy.pipeline_parallel * strategy.virtual_stages
        layers = transformer.num_layers // chunks
        layout.append(("--num-layers-per-virtual-pipeline-stage", str(layers)))
    return layout


def _activations(strategy: Strategy) -> list[Argument]:
    """DeepSpeed's engine goes by the older `--checkpoint-activations`, Megatron's by the newer."""
    match strategy.activation_checkpointing:
        case "none":
            return []
        case "selective":
            return [("--recompute-granularity", "selective")]
        case "full" if uses_deepspeed(strategy):
            return [("--checkpoint-activations",), ("--deepspeed-activation-checkpointing",)]
        case "full":
            return [("--recompute-granularity", "full"), ("--recompute-method", "uniform")]


def _kernels(strategy: Strategy) -> list[Argument]:
    """FlashAttention has 16-bit kernels alone; with fp32 its option would end the run."""
    if strategy.precision == "fp32":
        return []
    precision: Argument = (f"--{strategy.precision}",)
    return [precision, ("--use-flash-attn-v2",)] if strategy.flash_attention else [precision]


def _engine(strategy: Strategy) -> list[Argument]:
    """`--deepspeed_config` is left to the launcher, which knows where the file lies."""
    if not uses_deepspeed(strategy):
        return [("--use-distributed-optimizer",)] if strategy.zero_stage == 1 else []
    engine: list[Argument] = [("--deepspeed",), ("--zero-stage", str(strategy.zero_stage))]
    # DeepSpeed refuses ZeRO 2 and 3 in its pipeline engine, even with one stage.
    return [*engine, ("--no-pipeline-parallel",)] if strategy.zero_stage >= 2 else engine
