"""Artefacts on disk: whole or not at all."""

from __future__ import annotations

import io
import os
import tempfile
import zipfile
from pathlib import Path


def save_archive(archive: bytes, path: Path) -> list[Path]:
    """Write the archive itself where `path` ends in .zip, else its files into the folder `path`.

    Returns what was written. Raises OSError where that cannot be, a full disk included; then no
    file is left half-written.
    """
    if path.suffix == ".zip":
        path.parent.mkdir(parents=True, exist_ok=True)
        return [write_whole(path, archive)]
    path.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        entries = [entry for entry in opened.infolist() if not entry.is_dir()]
        # The base name alone: an entry cannot place a file outside of the folder.
        return [
            write_whole(path / Path(entry.filename).name, opened.read(entry)) for entry in entries
        ]


def write_whole(path: Path, content: bytes) -> Path:
    """Write under a temporary name beside `path`, then rename; scripts are made executable."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o755 if content.startswith(b"#!") else 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return path
