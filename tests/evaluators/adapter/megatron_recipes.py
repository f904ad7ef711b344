"""Reads the switches that performance recipes of Megatron-Bridge set, from a checkout.

    python -m tests.evaluators.adapter.megatron_recipes CHECKOUT > megatron_recipes.json

It needs what `megatron_bridge.py` needs. For each model and GPU it runs the recipe in bf16 for the
most GPUs, with the trainer's own rules of precision and overlap. Recipes of Megatron-FSDP, and
recipes that move activations to the host, are left out.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from tests.evaluators.adapter import megatron_bridge

MACHINES = {
    **{gpu: f"dgx-{gpu}" for gpu in ("h100", "b200", "b300")},
    **{gpu: f"{gpu}-nvl72" for gpu in ("gb200", "gb300")},
}
MODELS = {
    "llama-3-8b": ("llama", "llama3", "llama3_8b"),
    "llama-3-70b": ("llama", "llama3", "llama3_70b"),
    "llama-3.1-405b": ("llama", "llama31", "llama31_405b"),
    "qwen3-30b-a3b": ("qwen", "qwen3_moe", "qwen3_30b_a3b"),
    "qwen3-235b-a22b": ("qwen", "qwen3_moe", "qwen3_235b_a22b"),
    "deepseek-v3": ("deepseek", "deepseek_v3", "deepseek_v3"),
    "kimi-k2": ("kimi", "kimi_k2", "kimi_k2"),
    "gpt-oss-120b": ("gpt_oss", "gpt_oss", "gpt_oss_120b"),
}
"""Models of the catalogue -> the recipes' package, module and name."""
LAYOUT = {
    "tensor_parallel": "tensor_model_parallel_size",
    "pipeline_parallel": "pipeline_model_parallel_size",
    "context_parallel": "context_parallel_size",
    "expert_parallel": "expert_model_parallel_size",
    "virtual_stages": "virtual_pipeline_model_parallel_size",
}
ON = {
    "train": "manual_gc manual_gc_interval",
    "dist": "enable_megatron_core_experimental",
    "ddp": "align_param_gather bucket_size",
    "optimizer": "optimizer use_precision_aware_optimizer main_grads_dtype exp_avg_dtype"
    " exp_avg_sq_dtype overlap_param_gather_with_optimizer_step",
    "model": "cross_entropy_loss_fusion cross_entropy_fusion_impl apply_rope_fusion"
    " bias_activation_fusion bias_dropout_fusion calculate_per_token_loss tp_comm_overlap"
    " tp_comm_overlap_cfg overlap_p2p_comm delay_wgrad_compute use_te_rng_tracker"
    " overlap_moe_expert_parallel_comm",
}
OF_EXPERTS = (
    " moe_router_fusion moe_permute_fusion moe_grouped_gemm moe_token_dispatcher_type"
    " moe_router_force_load_balancing"
)
OF_FLEX = " moe_flex_dispatcher_backend moe_hybridep_num_sms moe_permute_fusion_into_hybridep"
DEFAULTS = ("adam", "torch.float32")
EITHER = {
    "ddp": "average_in_collective grad_reduce_in_fp32 check_for_nan_in_grad"
    " use_distributed_optimizer overlap_grad_reduce overlap_param_gather",
    "rerun_state_machine": "check_for_nan_in_loss",
}
"""Switches whose being off counts too."""
FUSED = {"bias_activation_fusion": True, "bias_dropout_fusion": True}
BRIDGED: Mapping[str, Mapping[str, Any]] = {
    "meta-llama": FUSED,
    "Qwen": {"num_moe_experts": 128, "moe_permute_fusion": True, "moe_grouped_gemm": True},
    "openai": {"num_moe_experts": 128, "bias_activation_fusion": True},
    "deepseek-ai": FUSED | {"num_moe_experts": 256},
    "moonshotai": FUSED | {"num_moe_experts": 384},
}
"""Publisher -> what its models have from Hugging Face's configuration (models/*/*_bridge.py)."""


class _AutoBridge(megatron_bridge._AutoBridge):
    def __init__(self, publisher: str) -> None:
        self.publisher = publisher

    @classmethod
    def from_hf_pretrained(cls, name: str, **_: Any) -> _AutoBridge:
        return cls(name.split("/")[0])

    def get_model_config(self) -> Any:
        return self.to_megatron_provider(load_weights=False)

    def to_megatron_provider(self, *, load_weights: bool) -> Any:
        if self.publisher in ("deepseek-ai", "moonshotai"):
            model = super().to_megatron_provider(load_weights=load_weights)
        else:
            module: Any = importlib.import_module("megatron.bridge.models.gpt_provider")
            model = module.GPTModelProvider(num_layers=1, hidden_size=8, num_attention_heads=1)
        model.vocab_size = 8
        for name, value in BRIDGED[self.publisher].items():
            setattr(model, name, value)
        return model


def _prepare(checkout: Path) -> None:
    megatron_bridge._runner(checkout)
    bridge: Any = sys.modules["megatron.bridge"]
    bridge.AutoBridge = _AutoBridge
    for imported in [each for each in sys.modules if each.startswith("megatron.bridge.recipes.")]:
        del sys.modules[imported]  # they have the other one
    families = {family for family, _, _ in MODELS.values()}
    parts = ("recipes", "perf_recipes")
    for name in ("perf_recipes", *(f"{part}.{family}" for part in parts for family in families)):
        package: Any = types.ModuleType(f"megatron.bridge.{name}")
        package.__path__ = [str(checkout / "src/megatron/bridge" / name.replace(".", "/"))]
        sys.modules[package.__name__] = package
    overlap: Any = importlib.import_module("megatron.bridge.training.comm_overlap")
    overlap.HAVE_TE = True


def _switches(recipe: Any) -> Iterator[tuple[str, Any]]:
    model = recipe.model
    of_experts = OF_EXPERTS if model.num_moe_experts else ""
    if of_experts and model.moe_token_dispatcher_type == "flex":
        of_experts += OF_FLEX
    for part, names in {**ON, "model": ON["model"] + of_experts}.items():
        for name in names.split():
            value = getattr(getattr(recipe, part), name, None)
            if value and str(value) not in DEFAULTS:
                yield f"{part}.{name}", value
    for part, names in EITHER.items():
        for name in names.split():
            yield f"{part}.{name}", getattr(getattr(recipe, part), name)
    if model.cuda_graph_impl != "none":
        yield "model.cuda_graph_impl", model.cuda_graph_impl
        yield "model.cuda_graph_modules", model.cuda_graph_scope
    yield from ((f"${name}", value) for name, value in recipe.env_vars.items())


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "[" + ",".join(value) + "]" if isinstance(value, list) else str(value)


def _recipe(model: str, gpu: str) -> Mapping[str, Any] | None:
    """Return its layout and switches, None where it has no counterpart here."""
    family, file, name = MODELS[model]
    module = importlib.import_module(f"megatron.bridge.perf_recipes.{family}.{gpu}.{file}")
    found = re.findall(rf"\b({name}_pretrain_(\d+)gpu_{gpu}_bf16_config)\b", " ".join(vars(module)))
    name, ranks = max(((each, int(number)) for each, number in found), key=lambda pair: pair[1])
    recipe = getattr(module, name)()
    if recipe.ddp.use_megatron_fsdp or recipe.model.cpu_offloading:
        return None
    if recipe.optimizer.optimizer == "adam":  # as scripts/performance/run_script.py does
        recipe.optimizer.use_precision_aware_optimizer = True
    sizes = {ours: getattr(recipe.model, theirs) or 1 for ours, theirs in LAYOUT.items()}
    cut = sizes["tensor_parallel"] * sizes["pipeline_parallel"] * sizes["context_parallel"]
    recipe.mixed_precision.finalize()
    recipe.mixed_precision.setup(recipe.model, recipe.optimizer, recipe.ddp)
    if recipe.comm_overlap is not None:
        recipe.comm_overlap.data_parallel_size = ranks // cut
        recipe.comm_overlap.finalize()
        table = recipe.comm_overlap.tp_comm_overlap_cfg
        recipe.comm_overlap.setup(recipe.model, recipe.optimizer, recipe.ddp)
        name_of = {id(value): each for each, value in vars(module).items()}
        recipe.model.tp_comm_overlap_cfg = recipe.model.tp_comm_overlap and name_of[id(table)]
    batch = recipe.train.micro_batch_size * ranks // cut
    layout = {each: size for each, size in sizes.items() if size > 1} | {
        "micro_batch_size": recipe.train.micro_batch_size,
        "gradient_accumulation_steps": recipe.train.global_batch_size // batch,
        "num_nodes": ranks // (4 if gpu.startswith("gb") else 8),
        "sequence_parallel": bool(recipe.model.sequence_parallel),
    }
    return {
        "recipe": name,
        "model": model,
        "machine": MACHINES[gpu],
        "layout": layout,
        "sets": {name: _text(value) for name, value in sorted(_switches(recipe))},
    }


def main(checkout: Path) -> Mapping[str, Any]:
    """Return the recipes, and what all of them set."""
    with redirect_stdout(sys.stderr):
        _prepare(checkout)
        read = [_recipe(model, gpu) for model in MODELS for gpu in MACHINES]
    recipes = [each for each in read if each is not None]
    common = dict(set.intersection(*(set(each["sets"].items()) for each in recipes)))
    own = [
        {**each, "sets": {n: v for n, v in each["sets"].items() if n not in common}}
        for each in recipes
    ]
    return {"common": dict(sorted(common.items())), "recipes": own}


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    answer = main(Path(sys.argv[1]).absolute())
    lines = ",\n    ".join(json.dumps(each) for each in answer["recipes"])
    print(f'{{\n  "common": {json.dumps(answer["common"])},\n  "recipes": [\n    {lines}\n  ]\n}}')
