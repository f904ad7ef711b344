"""The work that the keeper of trials is given: text and numbers, written at submission."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from autotune.cost_model.parameters import is_cpu
from evaluators.attempt.attempt import Attempt
from evaluators.cluster.profile import ClusterProfile
from evaluators.cluster.shell import container_words, environment_lines
from evaluators.program import Launcher, Program
from evaluators.program.megatron_deepspeed import DATASETS
from evaluators.ray.driver import SENT
from search_spaces.machine import Machine

SCRIPT, AS_RANKS = "body.sh", "as_ranks.sh"


def service_of(trials: Path) -> str:
    """Return an id of the service whose trials are in this folder."""
    place = f"{socket.gethostname()}:{os.getuid()}:{trials.absolute()}"
    return sha256(place.encode()).hexdigest()[:12]


def keeper_name(trials: Path) -> str:
    """Return the name of the actor that keeps these trials; it depends on the code's version."""
    root = Path(__file__).parents[2]
    sources = (root.joinpath(*name.split(".")).with_suffix(".py") for name in SENT)
    code = b"".join(source.read_bytes() for source in sources)
    return f"autotune-{service_of(trials)}-{sha256(code).hexdigest()[:8]}"


def bundle_of(machine: Machine, profile: ClusterProfile) -> dict[str, float]:
    """Return the resources of a trial on each node: all GPUs or, without GPUs, CPUs."""
    gpus, cpus = machine.gpus_per_node, profile.tasks.cpus_per_task
    if is_cpu(machine):
        return {"CPU": gpus * (cpus or 1)}
    return {"GPU": gpus, **({"CPU": gpus * cpus} if cpus else {})}


def work_of(attempt: Attempt, profile: ClusterProfile, program: Program) -> dict[str, Any]:
    """Return the work as JSON-compatible values; file contents have one character per byte.

    Raises:
        InvalidInput: the program cannot run the request's strategy.
        OSError: shared files, such as a dataset, could not be written.
    """
    request = attempt.request
    trials = Path(profile.ray.folder) / f"autotune-{service_of(request.directory.parent)}"
    folder = trials / request.token / attempt.folder.name
    launcher = Launcher(srun=("bash", str(folder / AS_RANKS)), container=container_words(profile))
    files = program.files(request, folder)
    script = [
        *environment_lines(profile),
        "export MASTER_ADDR",
        program.commands(request, folder, launcher),
        "",
    ]
    text = "\n".join(script)
    return {
        "folder": str(folder),
        "bundle": bundle_of(request.machine, profile),
        "nodes": request.strategy.num_nodes,
        "ranks": request.machine.gpus_per_node,
        "time_limit_s": request.protocol.time_limit_s,
        "files": {name: _plain(content) for name, content in {**files, SCRIPT: text}.items()},
        "shared": _datasets(trials / DATASETS, text),
    }


def _plain(text: str) -> str:
    return text.encode().decode("latin-1")


def _datasets(folder: Path, script: str) -> Mapping[str, str]:
    """Return the synthetic datasets that the script reads, by path, for nodes without them."""
    return {
        str(path): path.read_bytes().decode("latin-1")
        for path in folder.glob("*.*")
        if str(path.with_suffix("")) in script
    }
