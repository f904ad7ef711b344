"""Profiles by name: a user's folder of TOML files first, then the built-in ones."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

from evaluators.cluster.profile import ClusterProfile
from evaluators.cluster.reading import profile_from_dict
from search_spaces.catalog.files import read_toml, unknown_name
from search_spaces.errors import InvalidInput

READY = Path(str(files(__package__))) / "profiles"
CHECK_LIMIT_S = 10.0


def profile_names(folder: Path | None = None) -> list[str]:
    """Return the names of built-in profiles and of files in `folder`, sorted."""
    return sorted({*_names(READY), *_names(folder)})


def _names(folder: Path | None) -> list[str]:
    if folder is None or not folder.is_dir():
        return []
    return [path.stem for path in folder.glob("*.toml")]


def load_profile(choice: str | Path, *, folder: Path | None = None) -> ClusterProfile:
    """Return the profile of this name, or in this file if it is a `Path`.

    Text is only ever a name, so that a network request cannot name a file.

    Raises:
        InvalidInput, InvalidInputs: an unknown name, with the closest ones; or an invalid file.
    """
    if isinstance(choice, Path):
        return read_profile(choice)
    return read_profile(profile_file(choice, folder=folder))


def profile_file(name: str, *, folder: Path | None = None) -> Path:
    """Return the file of the profile of this name. Raises InvalidInput for an unknown one."""
    for profiles in (folder, READY):
        if profiles is not None and name in _names(profiles):
            return profiles / f"{name}.toml"
    raise unknown_name("profile", name, profile_names(folder))


def read_profile(path: Path) -> ClusterProfile:
    """Return the profile in a TOML file; ~ and $NAME are expanded from this process's environment.

    A profile without a name takes its file's. Its prologue is checked if bash is installed: a
    broken one would end every trial.

    Raises:
        InvalidInput, InvalidInputs: the file cannot be read, or is invalid.
    """
    table: dict[str, Any] = {"name": path.stem} | read_toml(path, field="profile")
    profile = profile_from_dict(table, source=str(path), environ=os.environ)
    prologue, bash = profile.environment.prologue, shutil.which("bash")
    if bash and prologue.strip():
        checked = subprocess.run(
            [bash, "-O", "extglob", "-n"],
            input=prologue,
            capture_output=True,
            text=True,
            timeout=CHECK_LIMIT_S,
            check=False,
        )
        if checked.returncode:
            complaint = checked.stderr.strip().splitlines()[0].removeprefix(f"{bash}: ")
            reason = f"not bash: {complaint} (in {path})"
            raise InvalidInput("environment.prologue", prologue, reason)
    return profile


def profile_for_machine(name: str) -> ClusterProfile | None:
    """Return the built-in profile of a machine of the catalog, or None."""
    profiles = map(load_profile, profile_names())
    return next((profile for profile in profiles if name and profile.machine == name), None)
