"""Find adapters by name: a user's own folder of TOML files first, then the bundled ones."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from evaluators.adapter.adapter import Adapter
from evaluators.adapter.reading import read_adapter
from search_spaces.catalog.files import unknown_name

READY = Path(str(files(__package__))) / "ready"


def adapter_names(folder: Path | None = None) -> list[str]:
    return sorted({*_names(READY), *_names(folder)})


def _names(folder: Path | None) -> list[str]:
    if folder is None or not folder.is_dir():
        return []
    return [path.stem for path in folder.glob("*.toml")]


def adapter_file(name: str, *, folder: Path | None = None) -> Path:
    """Return the file of the adapter with this name; raises InvalidInput for an unknown one."""
    for adapters in (folder, READY):
        if adapters is not None and name in _names(adapters):
            return adapters / f"{name}.toml"
    raise unknown_name("adapter", name, adapter_names(folder))


def load_adapter(name: str, *, folder: Path | None = None) -> Adapter:
    """Return the adapter with this name. Only names are accepted, so that a remote request cannot
    refer to a file.

    Raises:
        InvalidInput, InvalidInputs: there is no such adapter, or its file is invalid.
    """
    return read_adapter(adapter_file(name, folder=folder))
