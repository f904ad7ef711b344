"""Layouts that vendors publish for a model on a GPU (`recipes.toml`)."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import product
from typing import Any

from search_spaces.catalog.models import load_model
from search_spaces.dimensions import Scalar
from search_spaces.machine import Machine
from search_spaces.transformer import Transformer

UNSTATED: Mapping[str, Scalar] = {
    "tensor_parallel": 1,
    "pipeline_parallel": 1,
    "virtual_stages": 1,
    "context_parallel": 1,
    "expert_parallel": 1,
    "expert_tensor_parallel": 1,
    "micro_batch_size": 1,
    "zero_stage": 1,
    "activation_checkpointing": "none",
}
"""Values of the dimensions that a recipe does not state."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A published layout.

    Attributes:
        dimensions: its values; those not named, such as the number of nodes, are free.
        source: repository, file and commit.
    """

    vendor: str
    dimensions: Mapping[str, Scalar]
    source: str


def recipe_of(transformer: Transformer, machine: Machine, precision: str) -> Recipe | None:
    """Return the vendor's recipe for a model of this shape on this GPU; None without one."""
    return next(recipes_of(transformer, machine, precision), None)


def recipes_of(transformer: Transformer, machine: Machine, precision: str) -> Iterator[Recipe]:
    """Yield all recipes for a model of this shape on this GPU, the vendor's first.

    The model's name, its sequence length and its details do not matter.
    """
    gpu = machine.gpu.casefold()
    for table in _recipes():
        for kind, layout in _layouts(table, precision):
            if gpu.startswith(kind.casefold()) and any(
                _same_shape(transformer, load_model(name)) for name in table["models"]
            ):
                split = layout.get("tensor_parallel", 1) != 1
                dimensions = {**UNSTATED, "sequence_parallel": split, **layout}
                yield Recipe(vendor=table["vendor"], dimensions=dimensions, source=table["source"])


def published() -> Iterator[tuple[str, str, str]]:
    """Yield the model, GPU and precision of every recipe."""
    for table in _recipes():
        for key in table["layouts"]:
            gpu, *precisions = key.split()
            yield from product(table["models"], [gpu], precisions)


def _layouts(table: Mapping[str, Any], precision: str) -> Iterator[tuple[str, dict[str, Scalar]]]:
    for key, layout in table["layouts"].items():
        kind, *precisions = key.split()
        if precision in precisions:
            yield kind, layout


def _same_shape(one: Transformer, other: Transformer) -> bool:
    plain = (replace(each, name="", seq_length=1, details=None) for each in (one, other))
    return next(plain) == next(plain)


@cache
def _recipes() -> list[dict[str, Any]]:
    text = (files(__package__) / "recipes.toml").read_text("utf-8")
    recipes: list[dict[str, Any]] = tomllib.loads(text)["recipe"]
    return recipes
