"""The bash wrapper of each srun task: it sets the rank's variables and samples the node's power."""

from __future__ import annotations

import shlex
from pathlib import Path

from evaluators.program.power import SAMPLER
from evaluators.program.program import Launcher

SCRIPT_NAME = "task.sh"

# If Slurm shows a task one GPU, that is its device 0; if it shows all, the task uses the one with
# its local rank. Megatron compares LOCAL_RANK with rank % visible devices, which DeepSpeed on CPUs
# takes from LOCAL_SIZE, the tasks per node ("2(x3)" for two on each of three).
RANK_VARIABLES = r"""devices="${CUDA_VISIBLE_DEVICES:-${ZE_AFFINITY_MASK:-}}"
visible="${ROCR_VISIBLE_DEVICES:-$devices}"
case "$visible" in
    "" | *,*) LOCAL_RANK="$SLURM_LOCALID" ;;
    *) LOCAL_RANK=0 ;;
esac
LOCAL_SIZE="${SLURM_STEP_TASKS_PER_NODE:-${SLURM_TASKS_PER_NODE:-1}}"
LOCAL_SIZE="${LOCAL_SIZE%%[(,]*}"
export LOCAL_RANK LOCAL_SIZE RANK="$SLURM_PROCID" WORLD_SIZE="$SLURM_NTASKS"
export LOCAL_WORLD_SIZE="$LOCAL_SIZE" NODE_RANK="${SLURM_NODEID:-0}" GROUP_RANK="${SLURM_NODEID:-0}"
"""
"""The variables that torchrun sets, plus NODE_RANK and LOCAL_SIZE, which other launchers use.
Without single quotes, so that the text can be quoted with them."""

# A trainer starts other programs by name: Megatron's Makefile asks `python3` for the headers of
# pybind11.
_BECOME = r"""case "$1" in
    /*) export PATH="${1%/*}:$PATH" ;;
esac
if [[ "$SLURM_LOCALID" == 0 ]]; then
    sample </dev/null &
fi
exec "$@"
"""

_HEAD = """# bash task.sh COMMAND: becomes COMMAND, as one rank of a step, with the command's folder
# first on the PATH
"""

SCRIPT = "\n".join([_HEAD, RANK_VARIABLES, SAMPLER, _BECOME])


def as_ranks(launcher: Launcher, folder: Path, *words: str) -> str:
    """Return a line of bash that runs `words` (of bash) as every rank, using the script in
    `folder`."""
    return launcher.command("bash", shlex.quote(str(folder / SCRIPT_NAME)), *words)
