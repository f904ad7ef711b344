"""What a job runs: `job.sh`, which begins and ends an attempt once, and `body.sh`, which trains.

A step of an allocation runs the same `job.sh` without its head, and is told in the environment
what a job of its own would know: AUTOTUNE_JOB, the id of the allocation, and AUTOTUNE_NODES.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path

from evaluators import time_limit
from evaluators.attempt.attempt import ABANDONED, CANCELLED, ENDED, LOG, Attempt
from evaluators.cluster.profile import ClusterProfile
from evaluators.cluster.shell import (
    container_words,
    directive_line,
    environment_lines,
    sbatch_options,
    srun_words,
)
from evaluators.program import Launcher, Program
from evaluators.slurm.attempt_files import CLAIM
from evaluators.trial import TrialRequest
from evaluators.trial_files import RESULT

JOB_SCRIPT = "job.sh"
BODY_SCRIPT = "body.sh"
LEASE = "lease"
"""Beside the script of an allocation: for how many seconds it is needed from when the job first
sees this renewal, and the renewal's name. No clock is shared: any may be set while it is held."""
LEASE_S = 120
"""A lease is at least so long, since the nodes may see it late; and a job that begins waits so long
for one, since what it finds may have been written long ago."""

FOLDER_UNSEEN = 66
FOLDER_READ_ONLY = 73
LEFT_NO_END = 74
"""Exit codes of a job that could not begin, or not say how it ended (after sysexits.h)."""

# One job runs an attempt, once. Another of the same name, and one that comes too late, only ends.
_CLAIM_FOLDER = rf"""nodes="${{AUTOTUNE_NODES:-$SLURM_JOB_NODELIST}}"
job="${{AUTOTUNE_JOB:-$SLURM_JOB_ID}}"
cd -- "$folder" || exit {FOLDER_UNSEEN}
for last_word in {ABANDONED} ../{CANCELLED} ../{RESULT}; do
    if [[ -e "$last_word" ]]; then exit 0; fi
done
if ! mkdir {CLAIM} 2>/dev/null; then
    [[ -d {CLAIM} ]] && exit 0
    exit {FOLDER_READ_ONLY}
fi
begin="$(date +%s.%3N)"
read -r up _ </proc/uptime
printf '%s %s %s\n' "$job" "$begin" "$nodes" >{CLAIM}/job.partial
mv -f {CLAIM}/job.partial {CLAIM}/job
"""

# What Slurm ends does not say how it ended: Slurm knows why.
_RUN = rf"""exec </dev/null >>{LOG} 2>&1
export AUTOTUNE_JOB="$job" AUTOTUNE_NODES="$nodes"
trap 'exit 143' TERM
"""

# Nodes are held for as long as they were up meanwhile: a clock may be set while they are.
_WRITE_END = rf"""code=$?
read -r now _ </proc/uptime
end_ms=$((10#${{begin/./}} + 10 * (10#${{now/./}} - 10#${{up/./}})))
printf '%s %s %d.%03d\n' "$code" "$begin" $((end_ms / 1000)) $((end_ms % 1000)) \
    >{ENDED}.partial &&
    mv -f {ENDED}.partial {ENDED} || exit {LEFT_NO_END}
"""

_NOTICE_END = """: >"$ended_folder/$name"
exit "$code"
"""

# The seconds since the node was started: bash's own SECONDS follow the clock when it is set.
_SLEEP = rf"""seen="$(cat {LEASE})"
read -r now _ </proc/uptime
until=$((${{now%.*}} + {LEASE_S}))
while ((${{now%.*}} < until)); do
    sleep 5
    read -r now _ </proc/uptime
    lease="$(cat {LEASE})"
    if [[ "$lease" != "$seen" && "$lease" =~ ^([0-9]+)\ [0-9a-f]+$ ]]; then
        seen="$lease" until=$((${{now%.*}} + BASH_REMATCH[1]))
    fi
done
"""

_MASTER = """if [[ -z "${MASTER_ADDR:-}" ]]; then
    MASTER_ADDR="$(scontrol show hostnames "$AUTOTUNE_NODES" | head -n 1)"
fi
export MASTER_ADDR
"""


def job_script(attempt: Attempt, profile: ClusterProfile, *, exclude: Sequence[str] = ()) -> str:
    """Return the script that sbatch is given, for a job that leaves out the nodes in `exclude`.

    Raises:
        ValueError: something in the profile cannot be written as a `#SBATCH` line.
    """
    request = attempt.request
    head = job_head(
        profile,
        name=attempt.name,
        nodes=request.strategy.num_nodes,
        gpus_per_node=request.machine.gpus_per_node,
        minutes=time_limit.slurm_minutes(request.protocol.time_limit_s),
        exclude=exclude,
    )
    return f"{head}\n{run_script(attempt)}"


def job_head(
    profile: ClusterProfile,
    *,
    name: str,
    nodes: int,
    gpus_per_node: int,
    minutes: int,
    exclude: Sequence[str] = (),
) -> str:
    """Return the `#!` and `#SBATCH` lines; ours come after the profile's, so that they hold."""
    options = [
        *sbatch_options(profile, nodes=nodes, gpus_per_node=gpus_per_node),
        f"--job-name={name}",
        f"--comment={name}",
        f"--time={minutes}",
        "--no-requeue",
        "--chdir=/",
        "--output=/dev/null",
        *([f"--exclude={','.join(exclude)}"] if exclude else []),
    ]
    return "\n".join(["#!/bin/bash", *map(directive_line, options), ""])


def run_script(attempt: Attempt) -> str:
    """Return what a job or a step does with an attempt, as lines of bash with no head."""
    names = {"folder": attempt.folder, "ended_folder": attempt.ended_folder, "name": attempt.name}
    limit_s = attempt.request.protocol.time_limit_s
    return "\n".join(
        [
            *(f"{name}={shlex.quote(str(value))}" for name, value in names.items()),
            _CLAIM_FOLDER,
            _RUN,
            time_limit.command_within(limit_s, f"bash {BODY_SCRIPT}"),
            _WRITE_END,
            _NOTICE_END,
        ]
    )


def holding_script(
    profile: ClusterProfile,
    *,
    name: str,
    folder: Path,
    nodes: int,
    gpus_per_node: int,
    exclude: Sequence[str],
) -> str:
    """Return a job that holds nodes while its lease lasts, and outlives the failure of one.

    With the first of its nodes Slurm ends it all the same (`--no-kill`).

    Raises:
        ValueError: something in the profile cannot be written as a `#SBATCH` line.
    """
    head = job_head(
        profile,
        name=name,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        minutes=math.ceil(profile.pilot.time_limit_h * 60),
        exclude=exclude,
    )
    where = f"folder={shlex.quote(str(folder))}\n"
    return "\n".join([f"{head}#SBATCH --no-kill\n", where + _CLAIM_FOLDER, _SLEEP + _WRITE_END])


def body_script(
    attempt: Attempt, profile: ClusterProfile, program: Program, launcher: Launcher
) -> str:
    """Return what is set up and trained, in the attempt's folder.

    Raises:
        InvalidInput: the program cannot run the request's strategy.
    """
    return "\n".join(
        [
            *environment_lines(profile),
            _MASTER,
            program.commands(attempt.request, attempt.folder, launcher),
            "",
        ]
    )


def launcher_of(
    profile: ClusterProfile, request: TrialRequest, *, options: Sequence[str] = ()
) -> Launcher:
    """Return what starts a task for each GPU of the strategy's nodes; `options` are srun's."""
    nodes, gpus = request.strategy.num_nodes, request.machine.gpus_per_node
    words = srun_words(profile, gpus_per_node=gpus)
    return Launcher(
        srun=("srun", f"--nodes={nodes}", f"--ntasks={nodes * gpus}", *words, *options),
        container=container_words(profile),
    )
