"""The bash that each task of srun runs under: it names the rank, and samples the node's power."""

from __future__ import annotations

import shlex
from pathlib import Path

from evaluators.program.power import SAMPLER
from evaluators.program.program import Launcher

SCRIPT_NAME = "task.sh"

# Where Slurm shows a task one GPU, that is its device 0; where it shows all, the task takes the
# one of its own place on the node. Megatron compares LOCAL_RANK with rank % visible devices, which
# on CPUs DeepSpeed takes to be LOCAL_SIZE, the tasks of a node ("2(x3)" for two on each of three).
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
"""Those that torchrun sets, and NODE_RANK and LOCAL_SIZE, by which others know them. It holds no
single quote, so that it may stand between two of them."""

# A trainer starts others by name: Megatron's Makefile asks `python3` for the headers of pybind11.
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
    """Return a line of bash: `words` (of bash) as every rank, by the script that is in `folder`."""
    return launcher.command("bash", shlex.quote(str(folder / SCRIPT_NAME)), *words)
