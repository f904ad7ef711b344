"""Strategies of every kind that a launch has words for, and the way back from arguments."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import ActivationCheckpointing, Transformer

BASE = Strategy(
    tensor_parallel=2,
    pipeline_parallel=4,
    micro_batch_size=2,
    gradient_accumulation_steps=8,
    zero_stage=1,
    num_nodes=2,
)

STRATEGIES = {
    "the defaults": BASE,
    "no model parallelism, ZeRO-3": Strategy(
        tensor_parallel=1,
        pipeline_parallel=1,
        micro_batch_size=4,
        gradient_accumulation_steps=3,
        zero_stage=3,
        num_nodes=1,
        activation_checkpointing="none",
        precision="fp16",
    ),
    "ZeRO-2 with tensor parallelism": Strategy(
        tensor_parallel=8,
        pipeline_parallel=1,
        micro_batch_size=1,
        gradient_accumulation_steps=16,
        zero_stage=2,
        num_nodes=4,
        sequence_parallel=True,
    ),
    "ZeRO-0 in fp32": Strategy(
        tensor_parallel=1,
        pipeline_parallel=2,
        micro_batch_size=1,
        gradient_accumulation_steps=5,
        zero_stage=0,
        num_nodes=1,
        activation_checkpointing="selective",
        flash_attention=False,
        precision="fp32",
    ),
    "interleaved": Strategy(
        tensor_parallel=4,
        pipeline_parallel=4,
        micro_batch_size=1,
        gradient_accumulation_steps=8,
        zero_stage=1,
        num_nodes=2,
        virtual_stages=3,
        sequence_parallel=True,
    ),
    "interleaved, without a sharded optimizer": Strategy(
        tensor_parallel=2,
        pipeline_parallel=8,
        micro_batch_size=1,
        gradient_accumulation_steps=16,
        zero_stage=0,
        num_nodes=2,
        virtual_stages=2,
        activation_checkpointing="selective",
    ),
}


_INTEGERS = """
--num-layers --hidden-size --ffn-hidden-size --num-attention-heads --num-key-value-heads
--seq-length --max-position-embeddings --tensor-model-parallel-size --pipeline-model-parallel-size
--micro-batch-size --global-batch-size --vocab-size --num-layers-per-virtual-pipeline-stage
--zero-stage --train-iters --log-interval --eval-iters --eval-interval --save-interval
--num-workers
"""
_FLOATS = "--attention-dropout --hidden-dropout --lr"
_SWITCHES = """
--swiglu --use-rotary-position-embeddings --untie-embeddings-and-output-weights
--sequence-parallel --checkpoint-activations --deepspeed-activation-checkpointing --fp16 --bf16
--use-flash-attn-v2 --no-pipeline-parallel --use-distributed-optimizer --deepspeed
"""
_WORDS = """
--deepspeed_config --split --save --load --tokenizer-type --tokenizer-model --vocab-file
--merge-file
"""


def megatron_parser() -> argparse.ArgumentParser:
    """The options used here as `megatron/arguments.py` of Megatron-DeepSpeed's main declares them.

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
    parser.add_argument("--normalization", choices=["layernorm", "rmsnorm"], default="layernorm")
    parser.add_argument("--recompute-granularity", choices=["full", "selective"])
    parser.add_argument("--recompute-method", choices=["uniform", "block"])
    parser.add_argument("--data-path", nargs="*")
    return parser


def strategy_of(arguments: Sequence[str], machine: Machine, *, num_nodes: int) -> Strategy:
    """The strategy that a Megatron-DeepSpeed launch would train."""
    args = megatron_parser().parse_args(list(arguments))
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
        flash_attention=args.use_flash_attn_v2,
        virtual_stages=args.num_layers // pipeline // stage_layers if stage_layers else 1,
        precision="bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
    )


def transformer_of(arguments: Sequence[str], *, name: str, vocab_size: int) -> Transformer:
    """The model that a Megatron-DeepSpeed launch would train."""
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
