"""What is installed: the wheel holds all that the packages do, and locks name all of it by hash."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.requirement import require

HOUSE = Path(__file__).parents[1]
PROJECT = tomllib.loads((HOUSE / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
WITHOUT_LOCK = {"torch"}
"""Its build depends on the machine."""


def test_the_wheel_has_every_file_of_the_packages(tmp_path: Path) -> None:
    """Pages, templates, migrations, catalog and profiles are no Python files."""
    require(find_spec("hatchling") is not None, "hatchling, of requirements-build.lock")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    subprocess.run([*command, "--directory", str(tmp_path)], cwd=HOUSE, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    tracked = {
        str(path.relative_to(HOUSE))
        for package in PACKAGES
        for path in (HOUSE / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert len({name for name in held if not name.endswith(".py")}) > 50
    assert held == tracked


def test_every_dependency_is_locked_with_its_hashes() -> None:
    runtime, development = locked("requirements.lock"), locked("requirements-dev.lock")
    assert not set(runtime) & set(development)
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = [*PROJECT["project"]["dependencies"], *chain(*extras.values())]
    hold(wanted, within=runtime)
    hold(PROJECT["dependency-groups"]["dev"], within=runtime | development)
    hold(PROJECT["build-system"]["requires"], within=locked("requirements-build.lock"))


def locked(name: str) -> dict[str, str]:
    """Return the versions of a lock; each has hashes, and no line says where it comes from."""
    text = (HOUSE / name).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line]
    assert all("--hash=sha256:" in line for line in lines)
    assert not re.search(r"://|--index|--find-links", text)
    pinned = [re.match(r"([\w.-]+)==(\S+)", line) for line in lines]
    return {canonicalize_name(found[1]): found[2] for found in pinned if found}


def hold(requirements: list[Any], *, within: dict[str, str]) -> None:
    for requirement in map(Requirement, requirements):
        name = canonicalize_name(requirement.name)
        assert name in WITHOUT_LOCK or requirement.specifier.contains(within[name]), requirement
