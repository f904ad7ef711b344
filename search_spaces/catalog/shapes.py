"""A model's shape from a table of its fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from search_spaces.catalog.table import TableField, checked, refuse_all
from search_spaces.errors import InvalidInput
from search_spaces.transformer import Transformer

FIELDS = (
    TableField(name="name", kind=str, required=False),
    TableField(name="num_layers", kind=int, minimum=1, maximum=10_000),
    TableField(name="hidden_size", kind=int, minimum=1, maximum=1_000_000),
    TableField(name="num_attention_heads", kind=int, minimum=1, maximum=100_000),
    TableField(
        name="num_query_groups",
        kind=int,
        minimum=1,
        maximum=100_000,
        required=False,
        nullable=True,
    ),
    TableField(
        name="head_dim", kind=int, minimum=1, maximum=100_000, required=False, nullable=True
    ),
    TableField(
        name="ffn_hidden_size",
        kind=int,
        minimum=1,
        maximum=10_000_000,
        required=False,
        nullable=True,
    ),
    TableField(name="gated_mlp", kind=bool, required=False),
    TableField(
        name="seq_length", kind=int, minimum=1, maximum=100_000_000, unit="tokens", required=False
    ),
    TableField(name="vocab_size", kind=int, minimum=1, maximum=100_000_000, required=False),
    TableField(name="tied_embeddings", kind=bool, required=False),
)


def model_from_table(table: Mapping[str, Any]) -> Transformer:
    """Return a transformer from its fields; what is left out, or None, follows GPT-3.

    Raises:
        InvalidInputs: fields `model.…`: every wrong figure, or every pair that does not divide.
    """
    present = {key: value for key, value in table.items() if value is not None}
    shape = checked(present, FIELDS, prefix="model")
    transformer = Transformer(
        **{
            "name": "custom",
            "num_query_groups": shape.get("num_attention_heads"),
            "ffn_hidden_size": 4 * shape["hidden_size"],
        }
        | shape
    )
    heads, hidden = transformer.num_attention_heads, transformer.hidden_size
    groups = transformer.num_query_groups
    problems: list[InvalidInput] = []
    if transformer.head_dim is None and hidden % heads:
        reason = f"hidden_size {hidden} is not divisible by {heads} heads"
        valid = f"a divisor of {hidden}, or a head_dim"
        problems.append(InvalidInput("model.num_attention_heads", heads, reason, valid=valid))
    if heads % groups:
        reason = f"{heads} heads are not divisible by {groups} query groups"
        valid = f"a divisor of {heads}"
        problems.append(InvalidInput("model.num_query_groups", groups, reason, valid=valid))
    refuse_all(problems)
    if transformer.head_dim is not None and transformer.query_size == hidden:
        return replace(transformer, head_dim=None)
    return transformer
