"""The caller's files: models, machines and adapters to read, artefacts to write."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

from autotune.files import write_whole
from autotune.schemas.figures import FigureForm
from autotune.schemas.requests import AdapterFile
from autotune.schemas.shapes import MachineChoice, MachineShape, ModelChoice, ModelShape
from search_spaces.errors import InvalidInput

ModelInput = str | Path | ModelShape
"""A preset's name, a bare size such as "13B", a file (read here, not by the service), a shape."""
MachineInput = str | Path | MachineShape
AdapterInput = str | Path | AdapterFile
"""A name that the service knows, or a TOML file, read here with the files that it names."""

FIGURE_FORMS: tuple[FigureForm, ...] = ("svg", "png", "pdf", "csv", "vega.json", "json")
DATA_FORMS: tuple[FigureForm, ...] = ("csv", "json")
"""Formats without colours."""


def model_choice(model: ModelInput) -> ModelChoice:
    """Return the shape in a model's file; names and shapes unchanged.

    Raises:
        InvalidInput: the file cannot be read as a model.
    """
    if not isinstance(model, Path):
        return model
    from autotune.resolution import model_shape
    from search_spaces.catalog import read_model

    return model_shape(read_model(model))


def machine_choice(machine: MachineInput) -> MachineChoice:
    """Return the shape in a machine's file; names and shapes unchanged.

    Raises:
        InvalidInput: the file cannot be read as a machine.
    """
    if not isinstance(machine, Path):
        return machine
    from autotune.resolution import machine_shape
    from search_spaces.catalog import read_machine

    return machine_shape(read_machine(machine))


def adapter_choice(adapter: AdapterInput) -> str | AdapterFile:
    """Return an adapter's file with the files that its `base` names; names unchanged.

    Raises:
        InvalidInput, InvalidInputs: field `adapter`: a file cannot be read or is too large.
    """
    if not isinstance(adapter, Path):
        return adapter
    from autotune.validation import validated
    from search_spaces.catalog.files import parse_toml, read_text

    text = read_text(adapter, field="adapter")
    base = parse_toml(text, adapter, field="adapter").get("base")
    paths = base.values() if isinstance(base, Mapping) else ()
    files = {
        path: read_text(adapter.parent / Path(path).expanduser(), field="adapter")
        for path in paths
        if isinstance(path, str)
    }
    folder = str(adapter.parent.absolute())
    told = {"name": adapter.stem, "text": text, "folder": folder, "files": files}
    return validated(AdapterFile, told)


def figure_form(path: Path, *, field: str = "path") -> FigureForm:
    """Return the format of a figure, by the file's suffix.

    Raises:
        InvalidInput: field `field`: the suffix names no format.
    """
    name = path.name.lower()
    for form in FIGURE_FORMS:
        if name.endswith(f".{form}"):
            return form
    valid = (
        "a name that ends in .svg, .png, .pdf, .csv (its table), .json (its data) or .vega.json "
        "(Vega-Lite)"
    )
    raise InvalidInput(field, str(path), "its end names no format", valid=valid)


def save_archive(archive: bytes, path: Path) -> list[Path]:
    """Write the archive to `path` if that ends in .zip, else its files to the folder `path`.

    Returns the paths written. Raises OSError if they cannot be written, and leaves no partial file.
    """
    if path.suffix == ".zip":
        path.parent.mkdir(parents=True, exist_ok=True)
        return [write_whole(path, archive)]
    path.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        # The base name alone: an entry cannot place a file outside of the folder.
        contents = {
            Path(entry.filename).name: opened.read(entry)
            for entry in opened.infolist()
            if not entry.is_dir()
        }
    return [
        write_whole(path / name, content, executable=content.startswith(b"#!"))
        for name, content in contents.items()
    ]
