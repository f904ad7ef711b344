"""The Python interpreter that a program uses on the nodes."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
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


TIME_LIMIT_S = 60.0
"""Time limit of a query to an interpreter, which starts slowly on a parallel file system."""

# Nothing is imported: torch and DeepSpeed would take seconds, and perhaps a GPU.
_LOOK = """
import importlib.util, json, sys
print(json.dumps([name for name in sys.argv[1:] if importlib.util.find_spec(name) is None]))
"""


def packages_fault(interpreter: str, modules: Sequence[str]) -> str:
    """Start an interpreter; return which of the modules it lacks, or why it cannot say; empty if it
    has all."""
    if shutil.which(interpreter) is None:
        return "there is no such interpreter"
    try:
        answer = subprocess.run(
            [interpreter, "-c", _LOOK, *modules],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=TIME_LIMIT_S,
            check=True,
        )
        missing = json.loads(answer.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return f"it did not answer within {TIME_LIMIT_S:.0f} s"
    except (OSError, subprocess.SubprocessError, ValueError, LookupError) as error:
        return f"it cannot be asked for its packages: {error}"
    return f"it has no {', '.join(missing)}" if missing else ""
