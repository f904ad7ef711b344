"""The way back: what a launch of Megatron-DeepSpeed, and a configuration of NeMo, would train.

Options and keys are known here from their own sources alone, not from what renders them.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Literal

from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import ActivationCheckpointing, Transformer

_INTEGERS = """
--num-layers --hidden-size --ffn-hidden-size --num-attention-heads --seq-length
--max-position-embeddings --tensor-model-parallel-size --pipeline-model-parallel-size
--micro-batch-size --global-batch-size --vocab-size --num-layers-per-virtual-pipeline-stage
--zero-stage --train-iters --train-samples --log-interval --eval-iters --eval-interval
--save-interval --num-workers --seed --expert-interval
"""
_FLOATS = "--attention-dropout --hidden-dropout --lr"
_SWITCHES = """
--swiglu --use-rotary-position-embeddings --untie-embeddings-and-output-weights
--sequence-parallel --checkpoint-activations --deepspeed-activation-checkpointing --fp16 --bf16
--no-pipeline-parallel --use-distributed-optimizer --deepspeed
"""
_WORDS = """
--deepspeed_config --split --save --load --tokenizer-type --tokenizer-model --vocab-file
--merge-file --data-cache-path --lr-decay-style
"""


def megatron_parser(variant: Literal["main", "ornl"] = "main") -> argparse.ArgumentParser:
    """The options used here as `megatron/arguments.py` of Megatron-DeepSpeed declares them.

    As there, abbreviations are off, so that a misspelt option is an error.
    """
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    for name in _INTEGERS.split():
        parser.add_argument(name, type=int)
    for name in _FLOATS.split():
        parser.add_argument(name, type=float)
    for name in _SWITCHES.split():
        parser.add_argument(name, action="store_true")
    for name in _WORDS.split():
        parser.add_argument(name)
    parser.add_argument("--disable-bias-linear", action="store_false", dest="add_bias_linear")
    parser.add_argument("--no-query-key-layer-scaling", action="store_false", dest="qk_scaling")
    parser.add_argument("--no-gradient-accumulation-fusion", action="store_false", dest="fusion")
    parser.add_argument("--recompute-granularity", choices=["full", "selective"])
    parser.add_argument("--recompute-method", choices=["uniform", "block"])
    parser.add_argument("--data-path", nargs="*")
    parser.add_argument("--rampup-batch-size", nargs="*")
    if variant == "main":
        parser.add_argument("--num-key-value-heads", type=int)
        parser.add_argument(
            "--normalization", choices=["layernorm", "rmsnorm"], default="layernorm"
        )
        parser.add_argument("--use-flash-attn-v2", action="store_true", dest="flash")
    else:
        options = ("--use-flash-attn", "--use-flash-attn-v2")  # the second in the branch FA2
        parser.add_argument(*options, action="store_true", dest="flash")
        parser.add_argument("--master-addr")
    return parser


def strategy_of(
    arguments: Sequence[str],
    machine: Machine,
    *,
    num_nodes: int,
    variant: Literal["main", "ornl"] = "main",
) -> Strategy:
    """The strategy that a Megatron-DeepSpeed launch would train."""
    args = megatron_parser(variant).parse_args(list(arguments))
    tensor, pipeline = args.tensor_model_parallel_size, args.pipeline_model_parallel_size
    replicas = num_nodes * machine.gpus_per_node // (tensor * pipeline)
    stage_layers = args.num_layers_per_virtual_pipeline_stage
    checkpointing: ActivationCheckpointing = args.recompute_granularity or "none"
    if args.checkpoint_activations:
        checkpointing = "full"
    return Strategy(
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        micro_batch_size=args.micro_batch_size,
        gradient_accumulation_steps=args.global_batch_size // (args.micro_batch_size * replicas),
        zero_stage=args.zero_stage if args.deepspeed else int(args.use_distributed_optimizer),
        num_nodes=num_nodes,
        activation_checkpointing=checkpointing,
        sequence_parallel=args.sequence_parallel,
        flash_attention=args.flash,
        virtual_stages=args.num_layers // pipeline // stage_layers if stage_layers else 1,
        precision="bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
    )


def transformer_of(arguments: Sequence[str], *, name: str, vocab_size: int) -> Transformer:
    """The model that a launch with Megatron-DeepSpeed's main line would train."""
    args = megatron_parser().parse_args(list(arguments))
    return Transformer(
        name=name,
        num_layers=args.num_layers,
        hidden_size=args.hidden_size,
        num_attention_heads=args.num_attention_heads,
        num_query_groups=args.num_key_value_heads,
        ffn_hidden_size=args.ffn_hidden_size,
        gated_mlp=args.swiglu,
        seq_length=args.seq_length,
        vocab_size=vocab_size,
        tied_embeddings=not args.untie_embeddings_and_output_weights,
    )
