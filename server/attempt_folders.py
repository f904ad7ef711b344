"""Folders of a trial's attempts, `attempt-<number>` in its own; later attempts have higher
numbers."""

from __future__ import annotations

from pathlib import Path

ATTEMPT = "attempt-"


def attempt_folder(directory: Path, number: int) -> Path:
    """Return the folder of one attempt of the trial in `directory`."""
    return directory / f"{ATTEMPT}{number}"


def attempt_folders(directory: Path) -> list[Path]:
    """Return the existing attempt folders, in order."""
    found = directory.glob(f"{ATTEMPT}[1-9]*")
    return sorted(found, key=lambda folder: int(folder.name.removeprefix(ATTEMPT)))
