"""Ready spaces: which values each dimension takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.catalog.files import packaged_names, read_packaged, unknown_name

FOLDER = "spaces"


def space_names() -> list[str]:
    return list(packaged_names(FOLDER))


def load_space(name: str) -> Mapping[str, Any]:
    """Return dimension name -> choice, and `global_batch_size` where the space has one.

    Raises:
        InvalidInput: field `space`, with the closest names.
    """
    if name not in space_names():
        raise unknown_name("space", name, space_names())
    table = read_packaged(FOLDER, name)
    return {key: choice for key, choice in table.items() if key not in ("description", "sources")}
