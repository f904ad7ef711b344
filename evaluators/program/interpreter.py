"""The Python that a program runs with on the nodes."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import evaluators
from evaluators.cluster.profile import ClusterProfile

ANY = "python3"
_PYTHON = re.compile(r".*/python[0-9.]*")


def python(profile: ClusterProfile) -> str:
    """Return the profile's; without one this service's own, unless the job sets up its own."""
    if profile.python:
        return profile.python
    environment = profile.environment
    sets_up = environment.virtual_environment or environment.modules or profile.container
    return ANY if sets_up else sys.executable


def named_python(words: Sequence[str], *, folder: str) -> str | None:
    """Return the path of the interpreter that a command names; None where it names none.

    Args:
        folder: that the command runs in.
    """
    named = next(filter(_PYTHON.fullmatch, words), None)
    return str(Path(folder, named)) if named else None


def import_path(profile: ClusterProfile) -> list[str]:
    """Return bash with which this service's own interpreter finds this package on a node.

    Any other must have the package installed: this service's libraries are not for it.
    """
    if python(profile) != sys.executable:
        return []
    root = shlex.quote(str(Path(evaluators.__file__).parents[1]))
    return [f'export PYTHONPATH={root}"${{PYTHONPATH:+:$PYTHONPATH}}"']
