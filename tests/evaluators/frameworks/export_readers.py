"""The way back from the export for NeMo: what it would train.

Its keys are known here from its own source alone, not from what renders them.
"""

from __future__ import annotations

import importlib
from typing import Any

from search_spaces.strategy import Precision, Strategy

_PRECISIONS: dict[int | str, Precision] = {32: "fp32", 16: "fp16", "bf16": "bf16"}


def yaml_of(text: str) -> Any:
    return importlib.import_module("yaml").safe_load(text)


def strategy_of_nemo(text: str) -> Strategy:
    """The strategy that NeMo would train with this configuration."""
    config = yaml_of(text)
    trainer, model = config["trainer"], config["model"]
    tensor, pipeline = model["tensor_model_parallel_size"], model["pipeline_model_parallel_size"]
    context = model.get("context_parallel_size", 1)
    replicas = trainer["num_nodes"] * trainer["devices"] // (tensor * pipeline * context)
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
        activation_checkpointing=model.get("activations_checkpoint_granularity", "none"),
        sequence_parallel=model["sequence_parallel"],
        flash_attention=model["use_flash_attention"],
        virtual_stages=model.get("virtual_pipeline_model_parallel_size", 1),
        precision=_PRECISIONS[trainer["precision"]],
        context_parallel=context,
    )
