"""The way back from the exports: what Megatron-LM or NeMo would train.

Their options are known here from their own source alone, not from what renders them.
"""

from __future__ import annotations

import argparse
import importlib
import shlex
from typing import Any

from search_spaces.machine import Machine
from search_spaces.strategy import Precision, Strategy

_INTEGERS = """
--num-layers --hidden-size --ffn-hidden-size --num-attention-heads --seq-length
--max-position-embeddings --num-query-groups --tensor-model-parallel-size
--pipeline-model-parallel-size --micro-batch-size --global-batch-size --recompute-num-layers
"""
_FLOATS = "--attention-dropout --hidden-dropout"
_SWITCHES = """
--group-query-attention --swiglu --untie-embeddings-and-output-weights --sequence-parallel
--fp16 --bf16 --use-distributed-optimizer --use-megatron-fsdp
"""

_PRECISIONS: dict[int | str, Precision] = {32: "fp32", 16: "fp16", "bf16": "bf16"}


def megatron_lm_parser() -> argparse.ArgumentParser:
    """The options used here as Megatron-LM's `megatron/training/arguments.py` declares them."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    for name in _INTEGERS.split():
        parser.add_argument(name, type=int)
    for name in _FLOATS.split():
        parser.add_argument(name, type=float)
    for name in _SWITCHES.split():
        parser.add_argument(name, action="store_true")
    parser.add_argument("--disable-bias-linear", action="store_false", dest="add_bias_linear")
    parser.add_argument("--num-virtual-stages-per-pipeline-rank", type=int, default=1)
    parser.add_argument("--normalization", choices=["LayerNorm", "RMSNorm"], default="LayerNorm")
    parser.add_argument("--position-embedding-type", default="learned_absolute")
    parser.add_argument("--recompute-granularity", choices=["full", "selective"], default="none")
    parser.add_argument("--recompute-method", choices=["uniform", "block"])
    parser.add_argument("--attention-backend", choices=["flash", "fused", "unfused", "auto"])
    parser.add_argument("--ckpt-format", choices=["torch", "torch_dist", "fsdp_dtensor"])
    sharding = ["no_shard", "optim", "optim_grads", "optim_grads_params"]
    parser.add_argument("--data-parallel-sharding-strategy", choices=sharding)
    return parser


def strategy_of_megatron_lm(text: str, machine: Machine, *, num_nodes: int) -> Strategy:
    """The strategy that a Megatron-LM launch with these arguments would train."""
    args = megatron_lm_parser().parse_args(shlex.split(text))
    tensor, pipeline = args.tensor_model_parallel_size, args.pipeline_model_parallel_size
    replicas = num_nodes * machine.gpus_per_node // (tensor * pipeline)
    fsdp = {"optim_grads": 2, "optim_grads_params": 3}
    assert args.use_megatron_fsdp == (args.data_parallel_sharding_strategy is not None)
    assert not args.use_megatron_fsdp or args.ckpt_format == "fsdp_dtensor"  # it insists on it
    zero = fsdp.get(args.data_parallel_sharding_strategy, int(args.use_distributed_optimizer))
    assert (args.recompute_method is not None) == (args.recompute_granularity == "full")
    return Strategy(
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        micro_batch_size=args.micro_batch_size,
        gradient_accumulation_steps=args.global_batch_size // (args.micro_batch_size * replicas),
        zero_stage=zero,
        num_nodes=num_nodes,
        activation_checkpointing=args.recompute_granularity,
        sequence_parallel=args.sequence_parallel,
        flash_attention=args.attention_backend == "flash",
        virtual_stages=args.num_virtual_stages_per_pipeline_rank,
        precision="bf16" if args.bf16 else "fp16" if args.fp16 else "fp32",
    )


def yaml_of(text: str) -> Any:
    return importlib.import_module("yaml").safe_load(text)


def strategy_of_nemo(text: str) -> Strategy:
    """The strategy that NeMo would train with this configuration."""
    config = yaml_of(text)
    trainer, model = config["trainer"], config["model"]
    tensor, pipeline = model["tensor_model_parallel_size"], model["pipeline_model_parallel_size"]
    replicas = trainer["num_nodes"] * trainer["devices"] // (tensor * pipeline)
    fsdp = {None: None, "grad": 2, "full": 3}[model.get("fsdp_sharding_strategy")]
    assert model.get("fsdp", False) == (fsdp is not None)
    sharded = {"mcore_distributed_optim": 1, "fused_adam": 0}[model["optim"]["name"]]
    assert not (fsdp and sharded)  # NeMo refuses both together
    return Strategy(
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        micro_batch_size=model["micro_batch_size"],
        gradient_accumulation_steps=model["global_batch_size"]
        // (model["micro_batch_size"] * replicas),
        zero_stage=fsdp or sharded,
        num_nodes=trainer["num_nodes"],
        activation_checkpointing=model["activations_checkpoint_granularity"] or "none",
        sequence_parallel=model["sequence_parallel"],
        flash_attention=model["use_flash_attention"],
        virtual_stages=model["virtual_pipeline_model_parallel_size"] or 1,
        precision=_PRECISIONS[trainer["precision"]],
    )
