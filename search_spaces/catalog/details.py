"""The details of a model from its Hugging Face `config.json`, by its keys and its family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EPSILON = ("rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps", "norm_eps", "norm_epsilon")
QK_NORM = ("use_qk_norm", "qk_norm")
QKV_BIASES = ("attention_bias", "use_qkv_bias", "qkv_bias")
BASE = ("rope_theta", "rotary_emb_base")
SHARE = ("partial_rotary_factor", "rotary_pct")
SCORE = ("scoring_func", "score_function", "moe_router_activation_func")
NORMALIZED = ("norm_topk_prob", "moe_renormalize")
GROUPS = ("n_group", "num_expert_group")
BIAS = (
    *("moe_router_enable_expert_bias", "use_routing_bias", "use_moe_router_bias"),
    "moe_use_aux_free",
)
SCALE = ("routed_scaling_factor", "moe_router_scaling_factor")
BALANCE = ("router_aux_loss_coef", "aux_loss_alpha")
"""Keys of a detail, the usual one first."""

NORMED = (
    *("qwen3", "qwen3_moe", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"),
    *("qwen3_vl_text", "qwen3_vl_moe_text", "gemma3", "gemma3_text", "exaone4"),
)
UNNORMED = (
    *("llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "phi3", "gemma", "gemma2"),
    *("gpt_oss", "granite", "granitemoehybrid", "smollm3", "seed_oss", "starcoder2"),
)
"""Families that norm queries and keys of each head, and that do not."""
BIASED = ("qwen2", "qwen2_moe", "gpt_oss", "seed_oss", "starcoder2")
UNBIASED = ("llama", "mistral", "mixtral", "gemma", "gemma2", "phi3", "qwen3_next", "smollm3")
SIGMOID = ("glm4_moe", "glm4_moe_lite", "nemotron_h")
SOFTMAX = ("mixtral", "qwen2_moe", "qwen3_moe", "qwen3_next", "gpt_oss", "olmoe", "deepseek_v2")
NORMALIZING = ("mixtral", "gpt_oss")
GATED_SHARED = ("qwen2_moe", "qwen3_next", "qwen3_5_moe_text")


def details_of(config: Mapping[str, Any], *, family: str) -> dict[str, Any]:
    """Return the fields of `Details` that a configuration states, or that its family implies."""
    details = {**_of_attention(config, family), **_rotary(config)}
    if any(key in config for key in (*SCORE, *NORMALIZED)) or family in (*SOFTMAX, *SIGMOID):
        details |= _router(config, family)
    return {name: value for name, value in details.items() if value is not None}


def _first(config: Mapping[str, Any], keys: tuple[str, ...], kind: type | tuple[type, ...]) -> Any:
    values = (config.get(key) for key in keys)
    return next((value for value in values if isinstance(value, kind)), None)


def _either(family: str, yes: tuple[str, ...], no: tuple[str, ...]) -> bool | None:
    return True if family in yes else False if family in no else None


def _switch(
    config: Mapping[str, Any], keys: tuple[str, ...], of_family: bool | None
) -> bool | None:
    stated: bool | None = _first(config, keys, bool)
    return of_family if stated is None else stated


def _of_attention(config: Mapping[str, Any], family: str) -> dict[str, Any]:
    of_whole_width = config.get("qk_norm_type") == "per_layer"
    normed = _switch(config, QK_NORM, _either(family, NORMED, UNNORMED))
    return {
        "norm_epsilon": _first(config, EPSILON, float),
        "qk_norm": None if of_whole_width else normed,
        "qkv_biases": _switch(config, QKV_BIASES, _either(family, BIASED, UNBIASED)),
        "attention_sinks": True if family == "gpt_oss" else None,
    }


def _rotary(config: Mapping[str, Any]) -> dict[str, Any]:
    stated = config.get("rope_parameters") or config.get("rope_scaling") or {}
    scaling = stated if isinstance(stated, Mapping) else {}
    both = {**config, **scaling}
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    base = _first(both, BASE, (int, float))
    rotary = {"rotary_base": base, "rotary_share": _share(both)}
    if base is None:
        return rotary
    if kind not in ("llama3", "yarn"):
        return rotary | {"rotary_scaling": "none" if kind == "default" else "other"}
    yarn = {
        "yarn_beta_fast": scaling.get("beta_fast"),
        "yarn_beta_slow": scaling.get("beta_slow"),
        "yarn_rounded": scaling.get("truncate"),
        "yarn_mscale": scaling.get("mscale"),
        "yarn_mscale_all": scaling.get("mscale_all_dim"),
    }
    return {
        **rotary,
        "rotary_scaling": kind,
        "rotary_factor": scaling.get("factor"),
        "rotary_original_tokens": scaling.get("original_max_position_embeddings"),
        **(yarn if kind == "yarn" else {}),
    }


def _share(config: Mapping[str, Any]) -> float | None:
    width, head = config.get("rotary_dim"), config.get("head_dim")
    if isinstance(width, int) and isinstance(head, int):
        return width / head
    share: float | None = _first(config, SHARE, float)
    return share


def _router(config: Mapping[str, Any], family: str) -> dict[str, Any]:
    score = {True: "sigmoid", False: "softmax", None: None}[_either(family, SIGMOID, SOFTMAX)]
    groups = _first(config, GROUPS, int) or 1
    balanced_by_bias = config.get("topk_method") == "noaux_tc" or family in SIGMOID
    return {
        "router_score": _first(config, SCORE, str) or score,
        "router_normalized": _switch(config, NORMALIZED, _either(family, NORMALIZING, ())),
        "router_groups": groups if groups > 1 else None,
        "router_group_top_k": config.get("topk_group") if groups > 1 else None,
        "router_bias": _first(config, BIAS, bool) or balanced_by_bias or None,
        "routing_scale": _first(config, SCALE, (int, float)),
        # In GPT-OSS's configuration it is a default of the library.
        "balance_loss": None if family == "gpt_oss" else _first(config, BALANCE, float),
        "balance_loss_of": "sequence" if config.get("seq_aux") is True else None,
        "shared_expert_gate": True if family in GATED_SHARED else None,
    }
