"""Scripts for an adapter's trainer: a Slurm job, a script for this machine, and one rank, which any
launcher can start."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from inspect import getsource

from evaluators.adapter.adapter import Adapter
from evaluators.adapter.rendering import StartPlan, start_of
from evaluators.artefacts.job import (
    DEFAULT,
    IN_A_JOB,
    MEETING,
    STRICT,
    Launch,
    comment,
    environment,
    folder_here,
    folder_of_job,
    head,
    srun,
)
from evaluators.cluster.shell import container_words
from evaluators.program import local_ranks
from evaluators.program.interpreter import python as python_of
from evaluators.program.task import RANK_VARIABLES

TRAIN_ITERATIONS = 100
_OUT = "AUTOTUNE-OUT-FOLDER"
"""Placeholder for the output folder while the command is built; needs no quoting."""

RANK_NEEDS: Mapping[str, str] = {
    "RANK": "as torchrun sets it, as all of these",
    "LOCAL_RANK": "the rank on its node",
    "WORLD_SIZE": "how many ranks there are",
    "MASTER_ADDR": "the first rank's host",
    "MASTER_PORT": "its port",
}
"""Environment variables that a rank needs -> meaning."""

AS_IT_IS: Mapping[str, str] = {}
"""Quote every word of the trainer for the shell."""

_RANK = "rank.sh"
_START_RANK = f'bash "$RUN_DIR/{_RANK}"'

_FOLDER = """mkdir -p "$RUN_DIR"
cd "$RUN_DIR"
export OUT="$RUN_DIR"
echo "training in $RUN_DIR"
cat >{rank} <<'AUTOTUNE_RANK'
{script}AUTOTUNE_RANK
"""

_ALONE = """# --- all ranks on this machine, by no variable of a job that this may be in
unset "${!SLURM@}"
MASTER_ADDR="${MASTER_ADDR:-127.0.0.1}"
"""

# Empty arrays are unset before bash 4.4.
_EXTRA = 'read -r -a extra <<<"${EXTRA_ARGS:-}"'

_HEAD = """#!/bin/bash
# {name}: {strategy}
# Every rank runs it, with RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its
# environment, as torchrun sets them:
#   torchrun --nnodes={nodes} --nproc-per-node={ranks} … --no-python bash {file}
# OUT is the folder for its files; EXTRA_ARGS are further arguments, split at blanks.
set -euo pipefail
out="${{OUT:-$PWD/out}}"
mkdir -p "$out"
"""


def adapter_sbatch(launch: Launch, *, shell: Mapping[str, str] = AS_IT_IS) -> str:
    """Return the whole launch as a Slurm job, with one task of srun per GPU.

    Submit it from a folder that all nodes share, like its trials.

    Args:
        shell: text in the adapter -> shell word to replace it by.
    """
    rank = own_rank_script(launch, shell=shell)
    sections = [
        head(launch),
        "\n".join([DEFAULT, folder_of_job(launch.name), ""]),
        environment(launch.place),
        IN_A_JOB,
        MEETING,
        STRICT,
        _FOLDER.format(rank=_RANK, script=rank),
        "exec " + srun(launch, [_START_RANK]),
    ]
    return "\n".join(sections)


def adapter_script(launch: Launch) -> str:
    """Return a script that starts all ranks on this machine."""
    rank = own_rank_script(launch)
    ranks = launch.strategy.world_size(launch.machine.gpus_per_node)
    # As in a trial, ranks outside a job have no Slurm variables.
    task = shlex.quote(f'{RANK_VARIABLES}unset "${{!SLURM@}}"\nexec "$@"\n')
    inside = shlex.join(container_words(launch.place))
    start = f"{inside} bash -c {task} task {_START_RANK}".strip()
    sections = [
        "\n".join(
            [
                "#!/bin/bash",
                comment(f"{launch.name}: {launch.transformer.name}"),
                comment(launch.strategy.short()),
            ]
        ),
        _ALONE + folder_here(launch.name) + "\n",
        environment(launch.place),
        MEETING,
        STRICT,
        _FOLDER.format(rank=_RANK, script=rank),
        f"cat >local_ranks.py <<'AUTOTUNE_RANKS'\n{getsource(local_ranks)}AUTOTUNE_RANKS",
        f"exec python3 local_ranks.py {ranks} {start}\n",
    ]
    return "\n".join(sections)


def own_rank_script(
    launch: Launch, *, file: str = _RANK, shell: Mapping[str, str] = AS_IT_IS
) -> str:
    adapter = launch.place.adapter
    assert adapter
    return rank_script(launch, adapter, python=python_of(launch.place), file=file, shell=shell)


def rank_script(
    launch: Launch,
    adapter: Adapter,
    *,
    python: str,
    file: str,
    shell: Mapping[str, str] = AS_IT_IS,
) -> str:
    """Return the script of one rank, which starts what the trials started, for TRAIN_ITERATIONS
    iterations."""
    plan = StartPlan(
        transformer=launch.transformer,
        machine=launch.machine,
        strategy=launch.strategy,
        iterations=TRAIN_ITERATIONS,
        python=python,
        out=_OUT,
    )
    start = start_of(adapter, plan)
    head = _HEAD.format(
        name=" ".join(f"{launch.name} ({adapter.label})".split()),
        strategy=launch.strategy.short(),
        nodes=launch.strategy.num_nodes,
        ranks=launch.machine.gpus_per_node,
        file=file,
    )
    words = _Words({_OUT: '"$out"', **shell})
    lines = [head, *_files(start.files, words)]
    lines += [f"export {each}={words.of(value)}" for each, value in start.variables.items()]
    lines.append(f"cd {words.of(adapter.folder or _OUT)}")
    if start.prepare:
        lines.append(" ".join(map(words.of, start.prepare)))
    command = " ".join(map(words.of, start.words))
    return "\n".join([*lines, _EXTRA, f'exec {command} ${{extra[@]+"${{extra[@]}}"}}', ""])


class _Words:
    """Shell words, with some texts replaced by variables of the script."""

    def __init__(self, shell: Mapping[str, str]) -> None:
        self._shell = shell
        self._named = re.compile(f"({'|'.join(map(re.escape, shell))})")

    def of(self, text: str) -> str:
        parts = filter(None, self._named.split(text))
        return "".join(self._shell.get(part) or shlex.quote(part) for part in parts) or "''"


def _files(files: Mapping[str, str], words: _Words) -> Iterator[str]:
    for name, text in files.items():
        lines = " ".join(map(words.of, text.splitlines()))
        partial, whole = f'"$out/{name}.$RANK"', f'"$out/{name}"'
        yield f"printf '%s\\n' {lines} >{partial}\nmv {partial} {whole}"
