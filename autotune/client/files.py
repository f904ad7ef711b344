"""An archive of artefacts on disk."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from autotune.files import write_whole


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
        return [_save(opened.read(entry), path / Path(entry.filename).name) for entry in entries]


def _save(content: bytes, path: Path) -> Path:
    """Write one entry, a script as one that can be run.

    `path` has the base name of the entry alone: none can place a file outside of the folder.
    """
    return write_whole(path, content, executable=content.startswith(b"#!"))
