"""Folders of a trial's attempts, `attempt-<number>` in its own: a later one has a higher number."""

from __future__ import annotations

from pathlib import Path

ATTEMPT = "attempt-"


def attempt_folder(directory: Path, number: int) -> Path:
    """Return where one attempt of the trial in `directory` writes."""
    return directory / f"{ATTEMPT}{number}"


def attempt_folders(directory: Path) -> list[Path]:
    """Return the folders of all attempts that have one, in their order."""
    found = directory.glob(f"{ATTEMPT}[1-9]*")
    return sorted(found, key=lambda folder: int(folder.name.removeprefix(ATTEMPT)))
