"""A Hugging Face `config.json` as a transformer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from search_spaces.catalog.shapes import model_from_table
from search_spaces.errors import InvalidInput
from search_spaces.transformer import Transformer

# A configuration states the longest context that a model may be used with (131072 for Llama 3.1),
# which is not what one pre-trains with; above this the sequence length is the user's to state.
LONGEST_SEQUENCE = 8192

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


@dataclass(frozen=True, kw_only=True)
class ConfigKeys:
    """What one family of configurations calls each figure; None where it has none."""

    layers: str = "num_hidden_layers"
    hidden: str = "hidden_size"
    heads: str = "num_attention_heads"
    groups: str | None = None
    ffn: str = "intermediate_size"
    sequence: str = "max_position_embeddings"
    gated: bool = False
    tied: bool = False


FAMILIES = {
    "llama": ConfigKeys(groups="num_key_value_heads", gated=True),
    "mistral": ConfigKeys(groups="num_key_value_heads", gated=True),
    "qwen2": ConfigKeys(groups="num_key_value_heads", gated=True),
    "qwen3": ConfigKeys(groups="num_key_value_heads", gated=True),
    "gpt_neox": ConfigKeys(),
    "gpt2": ConfigKeys(
        layers="n_layer",
        hidden="n_embd",
        heads="n_head",
        ffn="n_inner",
        sequence="n_positions",
        tied=True,
    ),
}


def model_from_hugging_face(config: Mapping[str, Any], *, name: str) -> Transformer:
    """Return the shape that a `config.json` describes.

    The sequence length is the configuration's longest context, at most 8192. Biases that only some
    families have, and rotary positions of a model without a gated MLP, change the parameter count
    by less than a percent and are not told apart.

    Raises:
        InvalidInput: fields `model.…`: a family that is not known, a mixture of experts, a figure
            that is missing or wrong.
    """
    keys = _family(config)
    hidden, heads = _figure(config, keys.hidden), _figure(config, keys.heads)
    return model_from_table(
        {
            "name": name,
            "num_layers": _figure(config, keys.layers),
            "hidden_size": hidden,
            "num_attention_heads": heads,
            "num_query_groups": _optional_figure(config, keys.groups) or heads,
            "head_dim": _optional_figure(config, "head_dim"),
            "ffn_hidden_size": _optional_figure(config, keys.ffn) or 4 * hidden,
            "gated_mlp": keys.gated,
            "seq_length": min(_figure(config, keys.sequence), LONGEST_SEQUENCE),
            "vocab_size": _figure(config, "vocab_size"),
            "tied_embeddings": config.get("tie_word_embeddings", keys.tied),
        }
    )


def _family(config: Mapping[str, Any]) -> ConfigKeys:
    for key in EXPERTS:
        if config.get(key):
            reason = "a mixture of experts is not a dense transformer, and only those are laid out"
            raise InvalidInput(f"model.{key}", config[key], reason)
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        reason = "this family of configurations is not known"
        valid = ", ".join(FAMILIES) + "; or give the shape in a TOML file"
        raise InvalidInput("model.model_type", kind, reason, valid=valid)
    return FAMILIES[kind]


def _figure(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if type(value) is not int or value < 1:
        reason = "this field is missing" if value is None else "not a positive whole number"
        raise InvalidInput(f"model.{key}", value, reason, valid="a positive whole number")
    return value


def _optional_figure(config: Mapping[str, Any], key: str | None) -> int | None:
    return None if key is None or config.get(key) is None else _figure(config, key)
