"""Models: presets, bare sizes, and a user's own file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from search_spaces.catalog.files import (
    known_name,
    packaged_names,
    read_packaged,
    read_text,
    read_toml,
    unknown_name,
)
from search_spaces.catalog.hugging_face import model_from_hugging_face
from search_spaces.catalog.shapes import fields_of_line, model_from_table
from search_spaces.catalog.sizes import NEAR, conventional_shape, known_size, parameters_of_size
from search_spaces.errors import InvalidInput, demand_shallow
from search_spaces.fields import as_table
from search_spaces.transformer import Transformer

FOLDER = "models"
CONFIG = "config.json"
HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*(?<!\.json)(?<!\.toml)")
SIZE = "size"
"""Key of a preset: the bare size by which its model is known."""
TOTAL, STATED_WITHIN = "parameters", 0.02
"""Key of a file: how many parameters the model is known to have, and how near its shape has to come
to them."""
LIKE = "like"
"""Key of a preset: another one, whose figures it has but for those that it states."""


def model_names() -> list[str]:
    return list(packaged_names(FOLDER))


def load_model(choice: str) -> Transformer:
    """Return a preset by its name in any case, or the shape for a bare size such as "13B".

    A size by which a model is known takes that model's shape: GPT-3's family, with the Frontier
    study's 22B and 1T and OPT's 30B; Llama's 7B, 8B, 65B, 70B and 405B. Another takes a GPT-3-like
    shape of that size.

    Raises:
        InvalidInput: field `model`, with the closest names.
    """
    if preset := known_name(choice, model_names()):
        return _preset(preset)
    size = parameters_of_size(choice)
    if HUB_ID.fullmatch(choice):
        raise _no_file(Path(choice))
    if size is None:
        raise unknown_name("model", choice, model_names(), also='; or a bare size such as "13B"')
    name = "".join(choice.split()).upper()
    known = known_size(size, _sized_presets())
    return replace(known, name=name) if known else conventional_shape(size, name=name)


def meaning_of_size(model: Transformer) -> str:
    """Return which preset a bare size was taken for, or that a GPT-3-like shape was assumed; empty
    for a model that was not requested by its size."""
    try:
        size = parameters_of_size(model.name)
    except InvalidInput:  # a file whose name is a size that no model has
        return ""
    if size is None or not _is_shaped_as(model, load_model(model.name)):
        return ""
    for preset in _sized_presets().values():
        if _is_shaped_as(model, preset):
            return f"the shape of {preset.name}"
    near = (name for name in model_names() if abs(_preset(name).parameters / size - 1) <= NEAR)
    alike = [name for name in near if not _is_shaped_as(model, _preset(name))]
    also = f"; presets of this size: {', '.join(alike)}" if alike else ""
    return f"a GPT-3-like shape, assumed for this size{also}"


def _is_shaped_as(model: Transformer, other: Transformer) -> bool:
    alike = replace(
        other,
        name=model.name,
        seq_length=model.seq_length,
        vocab_size=model.vocab_size,
        details=model.details,
    )
    return model == alike


@cache
def _preset(name: str) -> Transformer:
    table = read_packaged(FOLDER, name)
    whole = read_packaged(FOLDER, table[LIKE]) | table if LIKE in table else table
    return _from_file(
        {key: value for key, value in whole.items() if key not in (SIZE, LIKE)}, name=name
    )


@cache
def _sized_presets() -> Mapping[float, Transformer]:
    sizes = {name: read_packaged(FOLDER, name).get(SIZE, "") for name in model_names()}
    return {
        parameters: _preset(name)
        for name, size in sizes.items()
        if (parameters := parameters_of_size(size)) is not None
    }


def read_model(path: Path, changes: Mapping[str, Any] | None = None) -> Transformer:
    """Return a user's TOML file, or a Hugging Face `config.json`, or the one in a folder.

    Args:
        changes: fields of its shape that differ.

    Raises:
        InvalidInput, InvalidInputs: where the file cannot be read or its shape is refused.
    """
    if path.is_dir():
        path = path / CONFIG
    if path.suffix != ".toml" and not path.exists():
        raise _no_file(path)
    name = path.resolve().parent.name if path.name == CONFIG else path.stem
    if path.suffix != ".json":
        return _from_file({**read_toml(path, field="model"), **(changes or {})}, name=name)
    text = read_text(path, field="model")
    try:
        config = json.loads(text)
        demand_shallow(config)
    except (ValueError, RecursionError) as error:
        raise InvalidInput("model", str(path), f"the file is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise InvalidInput("model", str(path), "the file holds no JSON object")
    return model_from_hugging_face(config, name=name, changes=changes)


def model_with(choice: str | Path, line: str) -> Transformer:
    """Return a model of which `mtp=0,seq=8192` differs.

    Raises:
        InvalidInput, InvalidInputs: as `read_model`, `load_model` and `model_from_line`.
    """
    changes = fields_of_line(line)
    if isinstance(choice, Path):
        return read_model(choice, changes)
    return model_from_table({**as_table(load_model(choice)), **changes})


def _no_file(path: Path) -> InvalidInput:
    valid = "a name of `autotune models`, a size, or a file"
    if path.name == CONFIG and path.parent.is_dir():
        reason = "the folder has no config.json"
    elif HUB_ID.fullmatch(str(path)):
        reason = "there is no such file, and models are not downloaded"
        valid = f"the config.json of {path}, saved in a file"
    else:
        reason = "the file cannot be read: No such file or directory"
    return InvalidInput("model", str(path), reason, valid=valid)


def _from_file(table: Mapping[str, Any], *, name: str) -> Transformer:
    shape = {key: value for key, value in table.items() if key not in ("sources", TOTAL)}
    model = model_from_table({"name": name} | shape)
    stated = table.get(TOTAL)
    if stated is None:
        return model
    if isinstance(stated, bool) or not isinstance(stated, int | float) or stated <= 0:
        raise InvalidInput(f"model.{TOTAL}", stated, "not a number of parameters", valid="30.5e9")
    counts = model.parameters, model.trained_parameters
    if all(abs(count / stated - 1) > STATED_WITHIN for count in counts):
        reason = f"the shape has {counts[0] / 1e9:.4g}B parameters, not {stated / 1e9:.4g}B"
        raise InvalidInput(f"model.{TOTAL}", stated, reason, valid="the published shape")
    return model
