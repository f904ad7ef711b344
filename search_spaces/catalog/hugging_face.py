"""A Hugging Face `config.json` as a transformer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from search_spaces.catalog.shapes import model_from_table
from search_spaces.errors import InvalidInput
from search_spaces.transformer import Transformer

# A configuration states the longest context that a model may be used with (131072 for Llama 3.1),
# which is not what one pre-trains with; above this the sequence length is the user's to state.
LONGEST_SEQUENCE = 8192

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
NOT_DESCRIBED = ("index_topk", "linear_attn_config", "moe_latent_size")
"""Keys of layers that a `Transformer` cannot describe: sparse and linear attention, experts behind
a projection."""

WINDOWS = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}
"""Word of `layer_types` -> the key of the tokens that such a layer attends to."""

BLOCKS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
"""Letter of Nemotron-H's pattern -> the block of that layer, as `layers_block_type` has it."""


@dataclass(frozen=True, kw_only=True)
class ConfigKeys:
    """Key of each field in the `config.json` of one family of models, those of Llama where not
    given; None: the family has none.

    Attributes:
        experts: the number of routed experts.
        expert_ffn: the width of one expert.
        shared: the width of all shared experts, or of one where `shared_count` counts them.
        dense: how many of the first layers are dense.
        biased: whether experts have biases and a clamped activation.
        latent: whether attention is latent.
        window: tokens of a windowed layer; where `layer_types` does not say which layers have the
            window, all but each `full_every`-th have it.
        hybrid: whether a pattern says which block each layer has.
        only: key -> the values of it that can be described, beside null.
    """

    layers: str = "num_hidden_layers"
    hidden: str = "hidden_size"
    heads: str = "num_attention_heads"
    groups: str | None = "num_key_value_heads"
    ffn: str | None = "intermediate_size"
    sequence: str = "max_position_embeddings"
    gated: bool = True
    tied: bool = False
    experts: str | None = None
    expert_ffn: str = "moe_intermediate_size"
    shared: str | None = None
    shared_count: str | None = None
    dense: str | None = None
    biased: bool = False
    latent: bool = False
    mtp: str | None = None
    window: str | None = None
    full_every: int = 0
    hybrid: bool = False
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


LLAMA = ConfigKeys()
MIXTRAL = ConfigKeys(
    ffn=None,
    experts="num_local_experts",
    expert_ffn="intermediate_size",
    window="sliding_window",
)
LLAMA_4 = replace(
    MIXTRAL,
    ffn="intermediate_size_mlp",
    shared="intermediate_size",
    window="attention_chunk_size",
    full_every=4,
    only={"interleave_moe_layer_step": (1,)},
)
GLM_4 = ConfigKeys(
    experts="n_routed_experts",
    shared="moe_intermediate_size",
    shared_count="n_shared_experts",
    dense="first_k_dense_replace",
    mtp="num_nextn_predict_layers",
)
DEEPSEEK = replace(GLM_4, groups=None, latent=True, only={"moe_layer_freq": (1,)})
FAMILIES = {
    "llama": LLAMA,
    "mistral": LLAMA,
    "qwen2": LLAMA,
    "qwen3": LLAMA,
    "gpt_neox": ConfigKeys(groups=None, gated=False),
    "gpt2": ConfigKeys(
        layers="n_layer",
        hidden="n_embd",
        heads="n_head",
        groups=None,
        ffn="n_inner",
        sequence="n_positions",
        gated=False,
        tied=True,
    ),
    "qwen3_moe": ConfigKeys(
        experts="num_experts", only={"decoder_sparse_step": (1,), "mlp_only_layers": ([],)}
    ),
    "mixtral": MIXTRAL,
    "gpt_oss": replace(MIXTRAL, full_every=2, biased=True),
    "llama4": LLAMA_4,
    "llama4_text": LLAMA_4,
    "deepseek_v2": DEEPSEEK,
    "deepseek_v3": DEEPSEEK,
    "kimi_k2": DEEPSEEK,
    "glm4_moe": GLM_4,
    "nemotron_h": ConfigKeys(
        gated=False,
        experts="n_routed_experts",
        shared="moe_shared_expert_intermediate_size",
        hybrid=True,
        only={"num_nextn_predict_layers": (0,), "n_shared_experts": (0, 1)},
    ),
}


def model_from_hugging_face(config: Mapping[str, Any], *, name: str) -> Transformer:
    """Return the shape that a `config.json` describes, of a multimodal one its language model.

    The sequence length is the configuration's longest context, at most 8192. Biases that only some
    families have, norms of queries and keys, attention sinks, and rotary positions of a model
    without a gated MLP change the parameter count by less than a percent and are not told apart.

    Raises:
        InvalidInput: fields `model.…`: a family that is not known, layers that cannot be described,
            a figure that is missing or wrong.
    """
    if isinstance(text := config.get("text_config"), Mapping):
        config = {**{key: value for key, value in config.items() if key != "text_config"}, **text}
    keys = _family(config)
    _refuse_undescribed(config, keys)
    hidden, heads = _figure(config, keys.hidden), _figure(config, keys.heads)
    routed = keys.experts is not None and _count(config, keys.experts) > 0
    return model_from_table(
        {
            "name": name,
            "num_layers": _figure(config, keys.layers),
            "hidden_size": hidden,
            "num_attention_heads": heads,
            "num_query_groups": _optional_figure(config, keys.groups) or heads,
            "head_dim": None if keys.latent else _head_dim(config),
            "ffn_hidden_size": _optional_figure(config, keys.ffn)
            or (None if routed else 4 * hidden),
            "gated_mlp": keys.gated,
            "seq_length": min(_figure(config, keys.sequence), LONGEST_SEQUENCE),
            "vocab_size": _figure(config, "vocab_size"),
            "tied_embeddings": config.get("tie_word_embeddings", keys.tied),
            "experts": _experts(config, keys) if routed else None,
            "latent_attention": _latent_attention(config) if keys.latent else None,
            "mtp_layers": _count(config, keys.mtp) if keys.mtp else None,
            "mamba": _mamba(config) if keys.hybrid else None,
            **_windows(config, keys),
        }
    )


def _family(config: Mapping[str, Any]) -> ConfigKeys:
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        reason = "this family of configurations is not known"
        valid = ", ".join(FAMILIES) + "; or give the shape in a TOML file"
        raise InvalidInput("model.model_type", kind, reason, valid=valid)
    return FAMILIES[kind]


def _refuse_undescribed(config: Mapping[str, Any], keys: ConfigKeys) -> None:
    for key in EXPERTS:
        if keys.experts != key and config.get(key):
            reason = f"a mixture of experts, which {config['model_type']} models have not"
            raise InvalidInput(f"model.{key}", config[key], reason)
    for key in NOT_DESCRIBED:
        if config.get(key):
            raise InvalidInput(f"model.{key}", config[key], "layers of this kind are not described")
    for key, values in keys.only.items():
        if config.get(key) is not None and config[key] not in values:
            valid = " or ".join(map(str, values))
            reason = "layers arranged like this are not described"
            raise InvalidInput(f"model.{key}", config[key], reason, valid=valid)
    routed = config.get("moe_layers")  # Llama 4: the layers with experts, by their numbers
    if isinstance(routed, Sequence) and len(routed) != _figure(config, keys.layers):
        reason = "models of which only some layers have experts are not described"
        raise InvalidInput("model.moe_layers", routed, reason, valid="every layer")


def _experts(config: Mapping[str, Any], keys: ConfigKeys) -> dict[str, int]:
    count = _count(config, keys.shared_count) if keys.shared_count else 1
    return {
        "num_experts": _figure(config, keys.experts or ""),
        "top_k": _figure(config, "num_experts_per_tok"),
        "ffn_hidden_size": _figure(config, keys.expert_ffn),
        "shared_ffn_hidden_size": count * _count(config, keys.shared) if keys.shared else 0,
        "dense_layers": _count(config, keys.dense) if keys.dense else 0,
        "biases": keys.biased,
    }


def _latent_attention(config: Mapping[str, Any]) -> dict[str, int | None]:
    return {
        "kv_rank": _figure(config, "kv_lora_rank"),
        "q_rank": _optional_figure(config, "q_lora_rank"),
        "qk_head_dim": _figure(config, "qk_nope_head_dim"),
        "rope_head_dim": _figure(config, "qk_rope_head_dim"),
        "v_head_dim": _figure(config, "v_head_dim"),
    }


def _mamba(config: Mapping[str, Any]) -> dict[str, int]:
    blocks = _blocks(config)
    found = Counter(blocks)
    if found["mlp"] and found["moe"]:
        reason = "a model with both dense and expert layers is not described"
        raise InvalidInput("model.hybrid_override_pattern", "".join(blocks), reason)
    return {
        "layers": found["mamba"],
        "attention_layers": found["attention"],
        "num_heads": _figure(config, "mamba_num_heads"),
        "head_dim": _figure(config, "mamba_head_dim"),
        "state_size": _figure(config, "ssm_state_size"),
        "num_groups": _figure(config, "n_groups"),
        "conv_kernel": _figure(config, "conv_kernel"),
    }


def _blocks(config: Mapping[str, Any]) -> list[str]:
    key = "hybrid_override_pattern" if "hybrid_override_pattern" in config else "layers_block_type"
    pattern = config.get(key)
    valid = (
        f"a letter of {' '.join(BLOCKS)} for each layer, or a list of {', '.join(BLOCKS.values())}"
    )
    if not isinstance(pattern, str | list):
        raise InvalidInput(
            f"model.{key}", pattern, "nothing says which layer is which", valid=valid
        )
    blocks = [BLOCKS.get(each, each) if isinstance(each, str) else "" for each in pattern]
    if not set(blocks) <= set(BLOCKS.values()) or len(blocks) != config.get("num_hidden_layers"):
        reason = "not the blocks of num_hidden_layers layers"
        raise InvalidInput(f"model.{key}", pattern, reason, valid=valid)
    return blocks


def _windows(config: Mapping[str, Any], keys: ConfigKeys) -> dict[str, int]:
    layers, types = _figure(config, keys.layers), config.get("layer_types")
    if isinstance(types, Sequence) and not keys.hybrid:
        found = Counter(map(str, types))
        full = found.pop("full_attention", 0)
        windowed = next(iter(found), "full_attention")
        if len(found) > 1 or (found and windowed not in WINDOWS) or full + found.total() != layers:
            valid = f"full_attention and one of {', '.join(WINDOWS)}, for each layer"
            raise InvalidInput("model.layer_types", types, "not described", valid=valid)
        key, count = WINDOWS.get(windowed), found.total()
    else:
        full = layers // keys.full_every if keys.full_every else 0
        rotary = config.get("no_rope_layers")  # Llama 4: 1 for each layer with a window
        key, count = keys.window, sum(rotary) if rotary else layers - full
    window = _optional_figure(config, key)
    return {"attention_window": window, "window_layers": count} if window and count else {}


def _head_dim(config: Mapping[str, Any]) -> int | None:
    return _optional_figure(config, "head_dim") or _optional_figure(config, "attention_head_dim")


def _figure(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if type(value) is not int or value < 1:
        reason = "this field is missing" if value is None else "not a positive whole number"
        raise InvalidInput(f"model.{key}", value, reason, valid="a positive whole number")
    return value


def _optional_figure(config: Mapping[str, Any], key: str | None) -> int | None:
    return None if key is None or config.get(key) is None else _figure(config, key)


def _count(config: Mapping[str, Any], key: str) -> int:
    return 0 if config.get(key) in (None, 0) else _figure(config, key)
