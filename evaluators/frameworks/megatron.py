"""The arguments that Megatron-LM and Megatron-DeepSpeed have in common."""

from __future__ import annotations

from collections.abc import Iterable

from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

Argument = tuple[str, ...]
"""One option with its values: `("--num-layers", "48")` or `("--swiglu",)`."""


def shape(transformer: Transformer) -> list[Argument]:
    """Return the model's sizes, and that it is trained without dropout."""
    t = transformer
    return [
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


def embeddings(transformer: Transformer) -> list[Argument]:
    """Return what says that the two embeddings have weights of their own, where they do."""
    return [] if transformer.tied_embeddings else [("--untie-embeddings-and-output-weights",)]


def layout(machine: Machine, strategy: Strategy) -> list[Argument]:
    """Return how the model and its batch are divided, but for virtual stages."""
    divided: list[Argument] = [
        ("--tensor-model-parallel-size", str(strategy.tensor_parallel)),
        ("--pipeline-model-parallel-size", str(strategy.pipeline_parallel)),
        ("--micro-batch-size", str(strategy.micro_batch_size)),
        ("--global-batch-size", str(strategy.global_batch_size(machine.gpus_per_node))),
    ]
    return [*divided, ("--sequence-parallel",)] if strategy.sequence_parallel else divided


def one_a_line(arguments: Iterable[Argument]) -> str:
    """Return the text of a file that a launcher passes on with `$(cat …)`."""
    return "".join(" ".join(argument) + "\n" for argument in arguments)
