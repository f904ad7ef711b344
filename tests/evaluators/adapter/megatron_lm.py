"""The way back from Megatron-LM's arguments: what it would train.

Its options are known from its own parser at one commit (`megatron_lm_options.json`, recorded by
`megatron_checkout.py`), not from what writes them.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from search_spaces.layers import Experts, LatentAttention, Mamba
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import RECOMPUTED_SETS
from tests.evaluators.adapter import megatron_bridge, megatron_checkout

RECORDED = json.loads((Path(__file__).parent / "megatron_lm_options.json").read_text())
COMMIT: str = RECORDED["commit"]
_TYPES = {"int": int, "float": float, "str": str}


@cache
def option_parser() -> argparse.ArgumentParser:
    """Return a parser of the recorded options."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    for option, facts in RECORDED["options"].items():
        options: dict[str, Any] = {"dest": facts["dest"], "default": facts.get("default")}
        if facts["action"] == "Store":
            options |= {"type": _TYPES.get(facts["type"], str), "choices": facts.get("choices")}
            options |= {"nargs": facts.get("nargs")}
            parser.add_argument(option, **options)
        else:
            action = {"StoreTrue": "store_true", "StoreFalse": "store_false"}[facts["action"]]
            parser.add_argument(option, action=action, **options)
    return parser


def strategy_of_arguments(args: Mapping[str, Any], machine: Machine, *, num_nodes: int) -> Strategy:
    """Return the strategy that Megatron-LM would train with these arguments, by their names in
    its code: as they were given, or as its validation leaves them."""
    tensor, pipeline = args["tensor_model_parallel_size"], args["pipeline_model_parallel_size"]
    context = args["context_parallel_size"]
    replicas = num_nodes * machine.gpus_per_node // (tensor * pipeline * context)
    batch, left = divmod(args["global_batch_size"], args["micro_batch_size"] * replicas)
    assert not left
    sharded = {"optim_grads": 2, "optim_grads_params": 3}
    zero = int(args["use_distributed_optimizer"])
    if args["use_megatron_fsdp"]:
        zero = sharded[args["data_parallel_sharding_strategy"]]
        assert args["ckpt_format"] == "fsdp_dtensor"  # it insists on it
    given = args["num_virtual_stages_per_pipeline_rank"]
    if args["pipeline_model_parallel_layout"]:
        chunks = re.sub(r"\((.+?)\)\*(\d+)", _repeated, args["pipeline_model_parallel_layout"])
        given = (chunks.count("|") + 1) // pipeline
    if args["hybrid_layer_pattern"]:
        given = (args["hybrid_layer_pattern"].count("|") + 1) // pipeline
    assert (args["recompute_method"] is not None) == (args["recompute_granularity"] == "full")
    return Strategy(
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        micro_batch_size=args["micro_batch_size"],
        gradient_accumulation_steps=batch,
        zero_stage=zero,
        num_nodes=num_nodes,
        activation_checkpointing=recomputed(args),
        sequence_parallel=args["sequence_parallel"],
        flash_attention=args["attention_backend"] == "auto",
        virtual_stages=args.get("virtual_pipeline_model_parallel_size", given) or 1,
        context_parallel=context,
        expert_parallel=args["expert_model_parallel_size"],
        expert_tensor_parallel=args["expert_tensor_parallel_size"] if args["num_experts"] else 1,
        precision=precision_of(args),
    )


def _repeated(run: re.Match[str]) -> str:
    return run[1] * int(run[2])


def recomputed(args: Mapping[str, Any]) -> Any:
    """Return what is recomputed: layers, the scores of attention, or named parts."""
    names = args["recompute_modules"]
    modules = set(ast.literal_eval(names) if isinstance(names, str) else names or ["core_attn"])
    if args["recompute_granularity"] != "selective":
        return args["recompute_granularity"] or "none"
    if modules == {"core_attn"}:
        return "selective"
    return next(each for each in RECOMPUTED_SETS if set(each.split("+")) == modules)


def precision_of(args: Mapping[str, Any]) -> Any:
    """Return the format of matrix products."""
    if args["fp4"]:
        return "nvfp4"
    if args["fp8"]:
        recipes = {"delayed": "fp8", "tensorwise": "fp8_current", "blockwise": "fp8_blockwise"}
        return recipes.get(args["fp8_recipe"], args["fp8_recipe"])
    return "bf16" if args["bf16"] else "fp16" if args["fp16"] else "fp32"


def layers_of_arguments(args: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the fields of `Transformer` that these arguments say of kinds of layers, by the names
    of Megatron-LM, which are those of Megatron Core's configuration."""
    layers = args["num_layers"]
    routed = _pattern(args["moe_layer_freq"], layers)
    experts, latent = None, None
    if args["num_experts"]:
        assert args["moe_grouped_gemm"]
        assert args["moe_token_dispatcher_type"] in ("alltoall", "flex")
        experts = Experts(
            num_experts=args["num_experts"],
            top_k=args["moe_router_topk"],
            ffn_hidden_size=args["moe_ffn_hidden_size"],
            shared_ffn_hidden_size=args["moe_shared_expert_intermediate_size"] or 0,
            dense_layers=routed.index(1),
            biases=args["add_bias_linear"],
        )
        assert (args["activation_func_clamp_value"] is not None) == experts.biases
        assert routed == [0] * experts.dense_layers + [1] * (layers - experts.dense_layers)
    mamba = None
    if args["hybrid_layer_pattern"]:
        pattern = args["hybrid_layer_pattern"].replace("|", "")
        blocks = Counter(pattern)
        assert len(pattern) == layers
        assert blocks["E" if experts else "-"] == layers - blocks["M"] - blocks["*"]
        mamba = Mamba(
            layers=blocks["M"],
            attention_layers=blocks["*"],
            num_heads=args["mamba_num_heads"],
            head_dim=args["mamba_head_dim"],
            state_size=args["mamba_state_dim"],
            num_groups=args["mamba_num_groups"],
        )
    if args["multi_latent_attention"]:
        assert args["qk_layernorm"]  # of both compressed widths
        latent = LatentAttention(
            kv_rank=args["kv_lora_rank"],
            q_rank=args["q_lora_rank"],
            qk_head_dim=args["qk_head_dim"],
            rope_head_dim=args["qk_pos_emb_head_dim"],
            v_head_dim=args["v_head_dim"],
        )
    window = args["window_size"]
    if isinstance(window, str):
        window = [int(number) for number in window.strip("()").split(",")]
    skipped = args["window_attn_skip_freq"]
    windowed = layers if skipped is None else sum(_pattern(skipped, layers))
    return {
        "experts": experts,
        "latent_attention": latent,
        "mamba": mamba,
        "mtp_layers": args["mtp_num_layers"] or 0,
        "attention_window": window[0] + 1 if window else None,  # beside the token itself
        "window_layers": windowed if window else 0,
    }


def _pattern(given: str | list[int] | int, layers: int) -> list[int]:
    """Return 1 for each layer of the given kind; Megatron-LM takes Python's lists."""
    if isinstance(given, int):
        return [1] * layers
    pattern: list[int] = eval(given, {"__builtins__": {}}) if isinstance(given, str) else given
    assert len(pattern) == layers
    return pattern


def parsed(words: Sequence[str]) -> dict[str, Any]:
    """Return what the recorded options make of the words after `python -m pretrain_gpt`."""
    return vars(option_parser().parse_args(words))


def answers(checkout: str, requests: Sequence[Mapping[str, Any]]) -> Any:
    """Return what a checkout's own parser and validation answer, in a process of their own."""
    words = [sys.executable, megatron_checkout.__file__, checkout]
    text = json.dumps(requests)
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        words, input=text, capture_output=True, text=True, check=False, env=environment
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout)


def answers_of_bridge(checkout: str, requests: Sequence[Mapping[str, Any]]) -> Any:
    """The same of a checkout of Megatron-Bridge, with the Python that it has."""
    ran = subprocess.run(
        [f"{checkout}/.venv/bin/python", "-m", megatron_bridge.__name__, checkout],
        cwd=Path(__file__).parents[3],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout)
