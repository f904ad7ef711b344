"""A model's shape from a table of its fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from search_spaces.errors import InvalidInput
from search_spaces.fields import checked, fields_of, fields_within, refuse_all
from search_spaces.transformer import Transformer


def model_from_table(table: Mapping[str, Any]) -> Transformer:
    """Return a transformer from its fields; what is left out, or None, follows GPT-3.

    Without a width of the dense MLP, an expert's width stands for it.

    Raises:
        InvalidInputs: fields `model.…`: every wrong figure, or all that do not fit each other.
    """
    return consistent_model(checked(Transformer, _present(table), prefix="model"))


def consistent_model(model: Transformer) -> Transformer:
    """Return the model, without a `head_dim` that follows from its other fields.

    Raises:
        InvalidInputs: fields `model.…` that do not fit each other.
    """
    refuse_all(
        chain.from_iterable(
            fault(model) for fault in (_indivisible, _contradictions, _not_hybrid, _not_mixed)
        )
    )
    if model.head_dim is not None and model.query_size == model.hidden_size:
        return replace(model, head_dim=None)
    return model


SHORT = {
    "layers": "num_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_query_groups",
    "ffn": "ffn_hidden_size",
    "gated": "gated_mlp",
    "tied": "tied_embeddings",
    "seq": "seq_length",
    "mtp": "mtp_layers",
    "vocab": "vocab_size",
}
"""Short form of a field in a line -> the field."""
TABLES = tuple(name for name, kind in fields_of(Transformer).items() if fields_within(kind))
"""Fields that are tables themselves."""
LINE_FIELDS = tuple(name for name in fields_of(Transformer) if name not in TABLES)
ON_OFF = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}


def model_from_line(text: str) -> Transformer:
    """Return a transformer from `layers=24,hidden=2048,heads=16`: fields of a model's TOML file, or
    their short forms. Experts, latent attention and Mamba layers need a file.

    Raises:
        InvalidInputs: fields `model` and `model.…`: all that is wrong.
    """
    return model_from_table(fields_of_line(text))


def fields_of_line(text: str) -> dict[str, Any]:
    """Return the fields that `layers=24,mtp=0` sets. Raises InvalidInputs."""
    shape: dict[str, Any] = {}
    problems: list[InvalidInput] = []
    for part in text.split(","):
        word, equals, value = (each.strip() for each in part.partition("="))
        key = word.lower().replace("-", "_")
        name = SHORT.get(key, key)
        if not equals or not value:
            problems.append(
                InvalidInput("model", part.strip(), "it sets no field", valid="field=value")
            )
        elif name not in LINE_FIELDS:
            nested = name.partition(".")[0] in TABLES
            reason = "it needs a TOML file" if nested else "a model has no such field"
            valid = ", ".join(
                [*SHORT, *(each for each in LINE_FIELDS if each not in SHORT.values())]
            )
            problems.append(InvalidInput("model", word, reason, valid=valid))
        elif name in shape:
            problems.append(InvalidInput("model", part.strip(), "the field is set twice"))
        else:
            shape[name] = value if name == "name" else _in_line(value)
    refuse_all(problems)
    return shape


def _in_line(value: str) -> Any:
    if value.isascii() and value.isdecimal():
        return int(value)
    return ON_OFF.get(value.lower(), value)


def _present(table: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _present(value) if isinstance(value, Mapping) else value
        for key, value in table.items()
        if value is not None
    }


def _indivisible(model: Transformer) -> Iterator[InvalidInput]:
    heads, hidden, groups = model.num_attention_heads, model.hidden_size, model.num_query_groups
    if model.head_dim is None and model.latent_attention is None and hidden % heads:
        reason = f"hidden_size {hidden} is not divisible by {heads} heads"
        valid = f"a divisor of {hidden}, or a head_dim"
        yield InvalidInput("model.num_attention_heads", heads, reason, valid=valid)
    if heads % groups:
        reason = f"{heads} heads are not divisible by {groups} query groups"
        yield InvalidInput("model.num_query_groups", groups, reason, valid=f"a divisor of {heads}")
    if model.mamba is not None and model.mamba.num_heads % model.mamba.num_groups:
        reason = f"{model.mamba.num_heads} heads are not divisible by these groups"
        yield InvalidInput("model.mamba.num_groups", model.mamba.num_groups, reason)


def _contradictions(model: Transformer) -> Iterator[InvalidInput]:
    layers, experts, latent = model.num_layers, model.experts, model.latent_attention
    groups = model.num_query_groups
    if experts is not None:
        if experts.top_k > experts.num_experts:
            reason = f"there are {experts.num_experts} experts"
            yield InvalidInput("model.experts.top_k", experts.top_k, reason)
        if experts.dense_layers >= layers:
            reason = f"none of {layers} layers is left for the experts"
            yield InvalidInput("model.experts.dense_layers", experts.dense_layers, reason)
    if latent is not None and model.head_dim is not None:
        reason = "latent attention has head widths of its own"
        yield InvalidInput("model.head_dim", model.head_dim, reason, valid="none")
    if latent is not None and groups != model.num_attention_heads:
        reason = "latent attention has no query groups"
        yield InvalidInput("model.num_query_groups", groups, reason, valid="none")
    if model.window_layers > layers or bool(model.window_layers) != bool(model.attention_window):
        reason = "attention_window and window_layers belong together"
        valid = f"up to {layers} layers with a window"
        yield InvalidInput("model.window_layers", model.window_layers, reason, valid=valid)


def _not_hybrid(model: Transformer) -> Iterator[InvalidInput]:
    mamba, experts = model.mamba, model.experts
    if mamba is None or not mamba.single_blocks:
        return
    blocks = mamba.layers + mamba.attention_layers
    if blocks + (experts is not None) > model.num_layers:
        reason = f"with the attention layers these are {blocks} of {model.num_layers} layers"
        yield InvalidInput("model.mamba.layers", mamba.layers, reason)
    if experts is not None and experts.dense_layers:
        reason = "a model whose layers have one block each is not described with these"
        yield InvalidInput("model.experts.dense_layers", experts.dense_layers, reason, valid="0")


def _not_mixed(model: Transformer) -> Iterator[InvalidInput]:
    recurrent, layers = model.recurrent, model.num_layers
    if model.sparse_attention is not None and model.latent_attention is None:
        reason = "sparse attention selects what latent attention attends to"
        yield InvalidInput("model.sparse_attention", None, reason, valid="latent_attention")
    if model.window_layers and (recurrent is not None or model.sparse_attention is not None):
        reason = "a model with Mamba, linear or sparse attention is not described with windows"
        yield InvalidInput("model.window_layers", model.window_layers, reason, valid="0")
    if model.attention_gate and model.latent_attention is not None:
        reason = "latent attention with a gate is not described"
        yield InvalidInput("model.attention_gate", True, reason, valid="false")
    if recurrent is None:
        return
    if model.mamba is not None and model.linear_attention is not None:
        reason = "a model with Mamba layers is not described with linear attention"
        yield InvalidInput("model.linear_attention", None, reason, valid="none")
    mixed = recurrent.layers + model.attention_layers
    if recurrent.layers > layers or (not recurrent.single_blocks and mixed < layers):
        name = "mamba" if model.mamba is not None else "linear_attention"
        reason = f"with the attention layers these are {mixed} of {layers} layers"
        yield InvalidInput(f"model.{name}.layers", recurrent.layers, reason)
