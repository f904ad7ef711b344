"""A job's scripts: `job.sh`, which begins and ends an attempt once, and `body.sh`, which trains.

A step of an allocation runs the same `job.sh` without its head; it gets the id of the allocation in
AUTOTUNE_JOB and its nodes in AUTOTUNE_NODES.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path

from autotune.files import write_whole
from evaluators import time_limit
from evaluators.attempt import ABANDONED, BODY_SCRIPT, CANCELLED, ENDED, Attempt, body_script
from evaluators.cluster.knobs import profile_of_run
from evaluators.cluster.profile import ClusterProfile
from evaluators.cluster.shell import (
    container_words,
    directive_line,
    sbatch_options,
    srun_words,
)
from evaluators.program import Launcher, Program
from evaluators.slurm.attempt_files import CLAIM
from evaluators.trial import LOG, RESULT

JOB_SCRIPT = "job.sh"
LEASE = "lease"
"""File next to an allocation's script: for how many seconds it is needed, counted from when the job
first reads this renewal, and the renewal's name. Clocks are not compared, since any may be set."""
LEASE_S = 120
"""Minimum of a lease, since nodes may see a file late; and how long a new job waits for a renewal,
since the lease that it finds may be old."""

FOLDER_UNSEEN = 66
FOLDER_READ_ONLY = 73
LEFT_NO_END = 74
"""Exit codes of a job that could not begin, or could not record its end (after sysexits.h)."""

# One job runs an attempt, once. Other jobs of the same name, and late ones, end at once.
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
memory="${{SLURM_MEM_PER_NODE:+$SLURM_MEM_PER_NODE MB on each node}}"
memory+="${{SLURM_MEM_PER_CPU:+$SLURM_MEM_PER_CPU MB for each CPU}}"
memory+="${{SLURM_MEM_PER_GPU:+$SLURM_MEM_PER_GPU MB for each GPU}}"
printf '%s %s %s\n%s\n' "$job" "$begin" "$nodes" "$memory" >{CLAIM}/job.partial
mv -f {CLAIM}/job.partial {CLAIM}/job
"""

# A script that Slurm ends does not record its end: Slurm reports the cause.
_RUN = rf"""exec </dev/null >>{LOG} 2>&1
export AUTOTUNE_JOB="$job" AUTOTUNE_NODES="$nodes"
trap 'exit 143' TERM
"""

# The duration follows the node's uptime, since its clock may be set meanwhile.
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

# Seconds of uptime: bash's own SECONDS follow the clock when it is set.
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
    """Return the script for sbatch, for a job that excludes these nodes.

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
    """Return the `#!` and `#SBATCH` lines; ours come last and override the profile's."""
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
    """Return the bash that runs an attempt in a job or a step, without a head."""
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
    """Return a job that holds nodes while its lease lasts.

    It survives the failure of a node (`--no-kill`), except the first.

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


def write_scripts(
    attempt: Attempt,
    profile: ClusterProfile,
    program: Program,
    job: str,
    *,
    srun: Sequence[str] = (),
    **others: str,
) -> None:
    """Write what an attempt runs: its program's files, `body.sh`, and `job.sh`, which is `job`.

    Args:
        srun: options besides those of one task per GPU of the strategy's nodes.
        others: further files, by name.

    Raises:
        InvalidInput: the program cannot run the request's strategy.
        OSError: the folder cannot be written.
    """
    request, folder = attempt.request, attempt.folder
    profile = profile_of_run(profile, request)
    nodes, gpus = request.strategy.num_nodes, request.machine.gpus_per_node
    words = srun_words(profile, gpus_per_node=gpus)
    launcher = Launcher(
        srun=("srun", f"--nodes={nodes}", f"--ntasks={nodes * gpus}", *words, *srun),
        container=container_words(profile),
    )
    files = {
        **program.files(request, folder),
        BODY_SCRIPT: body_script(request, folder, profile, program, launcher, _MASTER),
        JOB_SCRIPT: job,
        **others,
    }
    for place in (attempt.ended_folder, folder):
        place.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():  # a job of an earlier try may be reading them
        write_whole(folder / name, text)
