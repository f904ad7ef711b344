"""A strategy as a configuration of NeMo's `megatron_gpt_pretraining.py`.

It is laid over that script's own `megatron_gpt_config.yaml`, whose keys it uses; `model` names the
parallel sizes as NeMo 2.0's `MegatronStrategy` does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from search_spaces.errors import InvalidInput
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import ActivationCheckpointing, Transformer

BASE = "megatron_gpt_config"

_HEAD = f"""# python megatron_gpt_pretraining.py --config-dir=. --config-name=nemo
# It is laid over NeMo's own {BASE}.yaml, which has data, tokenizer, schedule.
"""

_FSDP_HEAD = """# ZeRO {stage} is torch's FSDP here, not the engine that was measured.
"""

_FSDP = {2: "grad", 3: "full"}
"""What torch's FSDP shards for ZeRO 2 and 3."""

PRECISION: Mapping[str, int | str] = {"fp32": 32, "fp16": 16, "bf16": "bf16"}

RECOMPUTATION: Mapping[ActivationCheckpointing, Mapping[str, Any]] = {
    "none": {"activations_checkpoint_granularity": None},
    "selective": {"activations_checkpoint_granularity": "selective"},
    "full": {
        "activations_checkpoint_granularity": "full",
        "activations_checkpoint_method": "uniform",
        "activations_checkpoint_num_layers": 1,
    },
}
"""The keys of each kind of activation checkpointing."""


def nemo_yaml(transformer: Transformer, machine: Machine, strategy: Strategy) -> str:
    """Return the YAML text, with a head that says how it is used.

    Raises:
        InvalidInput: NeMo has no words for this strategy.
    """
    check(transformer, strategy)
    stage = strategy.zero_stage
    note = _FSDP_HEAD.format(stage=stage) if stage in _FSDP else ""
    sharded = {"fsdp": True, "fsdp_sharding_strategy": _FSDP[stage]} if stage in _FSDP else {}
    parts = {
        "trainer": {
            "num_nodes": strategy.num_nodes,
            "devices": machine.gpus_per_node,
            "precision": PRECISION[strategy.precision],
        },
        "model": {
            **_model(transformer),
            **_layout(machine, strategy),
            **RECOMPUTATION[strategy.activation_checkpointing],
            # O2, main parameters beside 16-bit ones, is for bf16 without FSDP.
            "megatron_amp_O2": strategy.precision == "bf16" and not sharded,
            **sharded,
            "optim": {"name": "mcore_distributed_optim" if stage == 1 else "fused_adam"},
        },
    }
    return f"{_HEAD}{note}defaults:\n  - {BASE}\n  - _self_\n\n" + "\n".join(
        _section(name, values) for name, values in parts.items()
    )


def check(transformer: Transformer, strategy: Strategy) -> None:
    """Refuse what NeMo has no words for; raises InvalidInput."""
    if transformer.num_layers % strategy.pipeline_parallel:
        raise InvalidInput(
            "pipeline_parallel",
            strategy.pipeline_parallel,
            f"NeMo has pipelines of even stages alone, and there are {transformer.num_layers} "
            "layers",
            valid=f"a divisor of {transformer.num_layers}",
        )
    if strategy.zero_stage in _FSDP and strategy.pipeline_parallel > 1:
        raise InvalidInput(
            "zero_stage",
            strategy.zero_stage,
            "torch's FSDP does not run in NeMo's pipelines",
            valid="0 or 1, or pipeline_parallel 1",
        )


def _section(name: str, values: Mapping[str, Any]) -> str:
    """Return one or two levels of YAML; a scalar in JSON is one in YAML as well."""
    lines = [f"{name}:"]
    for key, value in values.items():
        if isinstance(value, Mapping):
            nested = _section(key, value).splitlines()
            lines += [f"  {line}" for line in nested]
        else:
            lines.append(f"  {key}: {json.dumps(value)}")
    return "\n".join(lines) + "\n"


def _model(transformer: Transformer) -> dict[str, Any]:
    t = transformer
    llama = {
        "activation": "swiglu",
        "normalization": "rmsnorm",
        "position_embedding_type": "rope",
        "bias": False,
    }
    return {
        "num_layers": t.num_layers,
        "hidden_size": t.hidden_size,
        "ffn_hidden_size": t.ffn_hidden_size,
        "num_attention_heads": t.num_attention_heads,
        "num_query_groups": t.num_query_groups,
        "encoder_seq_length": t.seq_length,
        "max_position_embeddings": t.seq_length,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "share_embeddings_and_output_weights": t.tied_embeddings,
        **(llama if t.gated_mlp else {}),
    }


def _layout(machine: Machine, strategy: Strategy) -> dict[str, Any]:
    stages = strategy.virtual_stages
    return {
        "tensor_model_parallel_size": strategy.tensor_parallel,
        "pipeline_model_parallel_size": strategy.pipeline_parallel,
        "virtual_pipeline_model_parallel_size": stages if stages > 1 else None,
        "micro_batch_size": strategy.micro_batch_size,
        "global_batch_size": strategy.global_batch_size(machine.gpus_per_node),
        "sequence_parallel": strategy.sequence_parallel,
        "use_flash_attention": strategy.flash_attention and strategy.precision != "fp32",
    }
