"""Puts command lines through the parser of a checkout of Megatron-Bridge, into the configuration of
a recipe, and through its validation.

    python -m tests.evaluators.adapter.megatron_bridge CHECKOUT < requests.json > answers.json

It wants torch and hydra-core, and Megatron-LM in the checkout's `3rdparty`. A request is
`{"words": […], "variables": {…}, "world_size": n}`; its answer is what of the configuration is the
strategy's and the model's, as Megatron-Bridge has it afterwards, or `{"error": …}`.

What a machine without GPUs lacks has a stand-in: the packages of `ABSENT`. Of packages of its own
that import every model that it knows only the modules are there that are asked for.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import types
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from tests.evaluators.adapter import megatron_checkout

ABSENT = frozenset(
    (
        *("datasets", "safetensors", "tensorboard", "transformers", "triton"),
        *("megatron.bridge.models.conversion", "megatron.bridge.peft"),
    )
)
RECIPES = {
    "vanilla_gpt_pretrain_config": "gpt.vanilla_gpt",
    "deepseek_v3_pretrain_config": "deepseek.deepseek_v3",
    "nemotronh_4b_pretrain_config": "nemotronh.nemotronh",
}
"""The recipes that are asked for -> their modules."""
FIELDS: Mapping[str, Sequence[str]] = {
    "model": (
        *("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads"),
        *(
            "num_query_groups",
            "seq_length",
            "gated_linear_unit",
            "add_bias_linear",
            "activation_func_clamp_value",
        ),
        *("share_embeddings_and_output_weights", "tensor_model_parallel_size"),
        *("pipeline_model_parallel_size", "virtual_pipeline_model_parallel_size"),
        "context_parallel_size",
        *("sequence_parallel", "recompute_granularity", "recompute_method", "bf16", "fp16"),
        *("recompute_modules", "fp8", "fp8_recipe", "fp4"),
        *("cross_entropy_loss_fusion", "cross_entropy_fusion_impl", "overlap_p2p_comm"),
        *("bias_activation_fusion", "bias_dropout_fusion", "apply_rope_fusion"),
        "use_mamba_mem_eff_path",
        *("expert_model_parallel_size", "expert_tensor_parallel_size", "num_moe_experts"),
        *("moe_router_topk", "moe_ffn_hidden_size", "moe_shared_expert_intermediate_size"),
        *("moe_layer_freq", "moe_grouped_gemm", "moe_token_dispatcher_type"),
        *("moe_router_force_load_balancing", "mtp_num_layers", "window_size"),
        *("window_attn_skip_freq", "multi_latent_attention", "q_lora_rank", "kv_lora_rank"),
        *("qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim", "qk_layernorm"),
        *("hybrid_layer_pattern", "mamba_num_heads", "mamba_head_dim", "mamba_state_dim"),
        "mamba_num_groups",
    ),
    "train": ("micro_batch_size", "global_batch_size", "train_iters", "manual_gc"),
    "ddp": (
        *("use_distributed_optimizer", "use_megatron_fsdp"),
        *("data_parallel_sharding_strategy", "overlap_grad_reduce", "overlap_param_gather"),
    ),
    "optimizer": ("use_distributed_optimizer", "overlap_param_gather"),
    "tokenizer": ("vocab_size",),
    "checkpoint": ("save", "load"),
    "dataset": ("blend",),
}


def _runner(checkout: Path) -> Any:
    """Return the module of the script that starts a recipe."""
    megatron_checkout.prepare(str(checkout / "3rdparty" / "Megatron-LM"), absent=ABSENT)
    for folder in ("src", "scripts/training", "scripts/common"):
        sys.path.insert(0, str(checkout / folder))
    for name in ("megatron.bridge", "megatron.bridge.models", "megatron.bridge.recipes"):
        package: Any = types.ModuleType(name)
        package.__path__ = [str(checkout / "src" / name.replace(".", "/"))]
        sys.modules[name] = package
    transformers: Any = importlib.import_module("transformers")
    for name in ("GenerationConfig", "PretrainedConfig"):
        setattr(transformers, name, type(name, (), {}))  # it asks what is one of these
    models: Any = sys.modules["megatron.bridge.models"]
    models.__getattr__ = _provider
    bridge: Any = sys.modules["megatron.bridge"]
    bridge.AutoBridge = _AutoBridge
    recipes: Any = sys.modules["megatron.bridge.recipes"]
    for name, module in RECIPES.items():
        setattr(
            recipes, name, getattr(importlib.import_module(f"{recipes.__name__}.{module}"), name)
        )
    megatron_checkout.with_transformer_engine()
    return importlib.import_module("run_recipe")


class _AutoBridge:
    """Stands in for what asks Hugging Face for a model's configuration: its provider of latent
    attention has nothing of any model."""

    @classmethod
    def from_hf_pretrained(cls, name: str, **_: Any) -> _AutoBridge:  # noqa: ARG003
        return cls()

    def to_megatron_provider(self, *, load_weights: bool) -> Any:
        assert not load_weights
        provider = importlib.import_module("megatron.bridge.models.mla_provider").MLAModelProvider
        return provider(num_layers=1, hidden_size=8, num_attention_heads=1)


def _provider(name: str) -> Any:
    kind = {"GPTModelProvider": "gpt_provider", "T5ModelProvider": "t5_provider"}.get(name)
    if kind is None:
        raise AttributeError(name)
    return getattr(importlib.import_module(f"megatron.bridge.models.{kind}"), name)


def _configured(script: Any, words: Sequence[str]) -> Any:
    """Return the recipe as the script would train it."""
    args, overrides = script.parse_args(words)
    recipe = script._apply_dataset(script._load_selected_recipe(args), args)
    recipe = script.apply_cli_overrides(recipe, overrides)
    recipe = script.sync_model_pipeline_layout(recipe, cli_overrides=overrides)
    recipe = script.sync_model_dataset_sequence_length(recipe)
    config: Any = importlib.import_module("megatron.bridge.training.config")
    config.runtime_config_update(recipe)
    return recipe


def _answer(script: Any, request: Mapping[str, Any]) -> Mapping[str, Any]:
    ranks = {"RANK": "0", "WORLD_SIZE": str(request["world_size"])}
    with megatron_checkout.environment({**request["variables"], **ranks}):
        try:
            recipe = _configured(script, request["words"])
            with redirect_stdout(StringIO()) as printed:
                recipe.log_non_default_values()
        except (Exception, SystemExit) as error:
            return {"error": f"{type(error).__name__}: {error}"}
    found = {
        f"{part}.{name}": getattr(getattr(recipe, part), name, None)
        for part, names in FIELDS.items()
        for name in names
    }
    size = recipe.data_parallel_size
    return {**found, "data_parallel_size": size, "printed": printed.getvalue()}


def main(checkout: Path, requests: Sequence[Mapping[str, Any]]) -> Any:
    """Return the answers."""
    with redirect_stdout(sys.stderr):
        script = _runner(checkout)
        return [_answer(script, each) for each in requests]


if __name__ == "__main__":
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    answers = main(Path(sys.argv[1]).absolute(), json.load(sys.stdin))
    json.dump(answers, sys.stdout)
