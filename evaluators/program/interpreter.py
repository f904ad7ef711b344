"""The Python interpreter that a program uses on the nodes."""

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
    """Return the profile's interpreter; without one, this service's own, unless the job's
    environment provides another."""
    if profile.python:
        return profile.python
    environment = profile.environment
    sets_up = environment.virtual_environment or environment.modules or profile.container
    return ANY if sets_up else sys.executable


def named_python(words: Sequence[str], *, folder: str) -> str | None:
    """Return the path of the interpreter in a command; None if there is none.

    Args:
        folder: working directory of the command.
    """
    named = next(filter(_PYTHON.fullmatch, words), None)
    return str(Path(folder, named)) if named else None


def import_path(profile: ClusterProfile) -> list[str]:
    """Return bash that lets this service's own interpreter import this package on a node.

    Other interpreters must have the package installed, since this service's libraries are not built
    for them.
    """
    if python(profile) != sys.executable:
        return []
    root = shlex.quote(str(Path(evaluators.__file__).parents[1]))
    return [f'export PYTHONPATH={root}"${{PYTHONPATH:+:$PYTHONPATH}}"']
