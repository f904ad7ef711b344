"""The environment of a trial's processes on a node.

It is sent to the cluster by value, like `evaluators.ray.node`.
"""

from __future__ import annotations

import os
import sys

# What tells of the process that set it, and not of what is to be run.
_OF_RAY = ("RAY_", "SLURM")
OWN_VARIABLES = frozenset({"OMP_NUM_THREADS", "PYTHONBREAKPOINT", "PWD", "OLDPWD", "SHLVL", "_"})


def plain_environment() -> dict[str, str]:
    """Return this process's environment without the variables of Ray or of a surrounding job; Ray's
    own Python comes first on the PATH."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_OF_RAY) and name not in OWN_VARIABLES
    }
    path = [os.path.dirname(sys.executable), plain.get("PATH", os.defpath)]
    return plain | {"PATH": os.pathsep.join(path)}
