"""Models: presets, bare sizes, and a user's own file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from search_spaces.catalog.files import (
    packaged_names,
    read_packaged,
    read_text,
    read_toml,
    unknown_name,
)
from search_spaces.catalog.hugging_face import model_from_hugging_face
from search_spaces.catalog.shapes import model_from_table
from search_spaces.catalog.sizes import conventional_shape, parameters_of_size
from search_spaces.errors import InvalidInput
from search_spaces.transformer import Transformer

FOLDER = "models"


def model_names() -> list[str]:
    """Return the names of the presets, sorted."""
    return list(packaged_names(FOLDER))


def load_model(choice: str) -> Transformer:
    """Return a preset by its name, or a conventional shape for a bare size such as "13B" or "350M".

    Raises:
        InvalidInput: field `model`, with the closest names.
    """
    if choice in model_names():
        return _from_file(read_packaged(FOLDER, choice), name=choice)
    size = parameters_of_size(choice)
    if size is None:
        raise unknown_name("model", choice, model_names(), also='; or a bare size such as "13B"')
    return conventional_shape(size, name="".join(choice.split()).upper())


def read_model(path: Path) -> Transformer:
    """Return a user's TOML file, or a Hugging Face `config.json`.

    Raises:
        InvalidInput, InvalidInputs: where the file cannot be read or its shape is refused.
    """
    name = path.resolve().parent.name if path.name == "config.json" else path.stem
    if path.suffix != ".json":
        return _from_file(read_toml(path, field="model"), name=name)
    text = read_text(path, field="model")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("model", str(path), f"the file is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise InvalidInput("model", str(path), "the file holds no JSON object")
    return model_from_hugging_face(config, name=name)


def _from_file(table: Mapping[str, Any], *, name: str) -> Transformer:
    """Return the table's shape; its `sources` are for readers of the file alone."""
    shape = {key: value for key, value in table.items() if key != "sources"}
    return model_from_table({"name": name} | shape)
