"""The parts that every sbatch script here has: head, settings, environment, srun."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from evaluators.cluster.profile import ClusterProfile
from evaluators.cluster.shell import (
    container_words,
    directive_line,
    environment_lines,
    is_reference,
    sbatch_directives,
    srun_words,
)
from evaluators.program.rendezvous import RENDEZVOUS
from evaluators.program.task import RANK_VARIABLES
from search_spaces.machine import Machine
from search_spaces.strategy import Strategy
from search_spaces.transformer import Transformer

TIME_LIMIT = "02:00:00"
"""Enough for the default iterations anywhere; `sbatch --time` overrides it."""

STRICT = "set -euo pipefail\n"
"""Not before the environment and the meeting: what they run is not written for it."""

DEFAULT = """default() { [[ -n "${!1:-}" ]] || printf -v "$1" %s "$2"; }"""
"""bash: `default NAME VALUE` sets a variable that the user has not set."""

IN_A_JOB = r"""if [[ -z "${SLURM_JOB_ID:-}" ]]; then
    echo "This launch cannot start: submit this file with sbatch" >&2
    exit 2
fi
"""

MEETING = f"# --- where the ranks meet\n{RENDEZVOUS}"


@dataclass(frozen=True, kw_only=True)
class ClusterLaunch:
    """One strategy of one model, started on a cluster as its profile says.

    Attributes:
        name: of the campaign; a job has it in letters that Slurm takes.
    """

    transformer: Transformer
    machine: Machine
    strategy: Strategy
    profile: ClusterProfile
    name: str


def comment(text: str) -> str:
    """Return one line: a user's name may hold anything, and a line break would end a comment."""
    return "# " + " ".join(text.split())


def job_name(name: str) -> str:
    """Return the name in letters that Slurm, a shell and a file system take as they are."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-") or "training"


def folder_of_job(name: str) -> str:
    """Return bash for RUN_DIR, after DEFAULT: a folder of the job's own where it was submitted."""
    folder = f'"${{SLURM_SUBMIT_DIR:-$PWD}}/{job_name(name)}-${{SLURM_JOB_ID:-}}"'
    return f"default RUN_DIR {folder}"


def folder_here(name: str) -> str:
    """Return bash for RUN_DIR: a folder of the run's own where it was started."""
    return f'RUN_DIR="${{RUN_DIR:-$PWD/{job_name(name)}-$(date +%Y%m%d-%H%M%S)}}"'


def head(launch: ClusterLaunch) -> str:
    """Return the first lines: what the profile asks of sbatch, and what the script is."""
    strategy, profile, gpus = launch.strategy, launch.profile, launch.machine.gpus_per_node
    options = [f"--job-name={job_name(launch.name)}", f"--time={TIME_LIMIT}", "--output=%x-%j.log"]
    directives = [
        *map(directive_line, options),
        *sbatch_directives(profile, nodes=strategy.num_nodes, gpus_per_node=gpus),
    ]
    comments = [
        f"{launch.name}: {launch.transformer.name} on {launch.machine.name}",
        f"{strategy.short()}, global batch {strategy.global_batch_size(gpus)}",
        f"For the cluster profile {profile.name}: {profile.description}",
        "What stands above yields to SBATCH_ACCOUNT, SBATCH_PARTITION and sbatch's own options.",
    ]
    return "\n".join(["#!/bin/bash", *directives, *map(comment, comments), ""])


def settings(values: Mapping[str, tuple[str, str]]) -> list[str]:
    """Return bash for variables that a user may set.

    Args:
        values: name -> its value where the user sets none, and its meaning.
    """
    return [
        f"default {name} {shlex.quote(value)}  # {meaning}"
        for name, (value, meaning) in values.items()
    ]


def environment(profile: ClusterProfile) -> str:
    """Return the profile's environment, as a trial has it; a user's own value of a variable wins.

    The log says so, because the run is then not quite the one that was measured.
    """
    title = "# --- the environment of the cluster profile"
    # What a reference stands for is a secret, which no log is to show.
    variables = profile.environment.variables.items()
    names = " ".join(name for name, value in variables if not is_reference(value))
    if not names:
        return "\n".join([title, *environment_lines(profile), ""])
    return "\n".join(
        [
            title,
            "own=()",
            f"for name in {names}; do",
            '    [[ -z "${!name:-}" ]] || own+=("$name=${!name}")',
            "done",
            *environment_lines(profile),
            "if (( ${#own[@]} > 0 )); then",
            '    echo "your own, instead of the profile\'s: ${own[*]}" >&2',
            '    export "${own[@]}"',
            "fi",
            "",
        ]
    )


def srun(launch: ClusterLaunch, lines: Iterable[str]) -> str:
    """Return the command that starts one task for each GPU, which becomes `lines` (of bash)."""
    options = [
        f"--nodes={launch.strategy.num_nodes}",
        *srun_words(launch.profile, gpus_per_node=launch.machine.gpus_per_node),
    ]
    task = shlex.quote(f'{RANK_VARIABLES}exec "$@"\n')
    inside = container_words(launch.profile)
    started = [
        f"srun {shlex.join(options)}",
        *([shlex.join(inside)] if inside else []),
        f"bash -c {task} task",
        *lines,
    ]
    return " \\\n    ".join(started) + "\n"
