"""The bash of each srun task: where ranks meet, their variables, and the sampling of power."""

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
    return launcher.command("bash", shlex.quote(str(folder / SCRIPT_NAME)), *words)


FIRST_PORT, PORTS = 20000, 1000
"""Below the kernel's ephemeral ports (from 32768 on)."""

LOCKS = "/tmp/autotune-$UID-locks"

# Runs on the host that starts the steps. A node's name is usually resolvable; if not, Slurm knows
# the address. A port is held by a lock for as long as anything started from here runs, so two runs
# on one host never share one; ports with another listener are skipped. The locks' folder has a
# predictable name: if it does not belong to this user or others may write to it, nothing in it is
# opened, the lock is then private to this run, and its first port is random.
RENDEZVOUS = rf"""if [[ -z "${{MASTER_ADDR:-}}" ]]; then
    MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"
fi
if ! getent hosts "$MASTER_ADDR" >/dev/null; then
    address="$(scontrol show node "$MASTER_ADDR" --oneliner |
        sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')"
    MASTER_ADDR="${{address:-$MASTER_ADDR}}"
fi
locks="{LOCKS}"
mkdir -m 700 "$locks" 2>/dev/null
offset=$(( $(cksum <<<"$PWD" | cut -d ' ' -f 1) ))
if [[ -L "$locks" || ! -O "$locks" || "$(stat --format %a "$locks")" != 700 ]]; then
    echo "autotune: $locks is not this user's alone; ports are taken without locks" >&2
    locks="$(mktemp -d)"
    offset=$RANDOM
fi
for ((tried = 0; tried < {PORTS}; tried++)); do
    MASTER_PORT=$(( {FIRST_PORT} + (offset + tried) % {PORTS} ))
    {{ exec {{lock}}>>"$locks/$MASTER_PORT"; }} 2>/dev/null
    if flock --nonblock "$lock" &&
        ! timeout 2 bash -c ": >/dev/tcp/$MASTER_ADDR/$MASTER_PORT" 2>/dev/null; then
        break
    fi
    exec {{lock}}>&-
done
export MASTER_ADDR MASTER_PORT
if [[ "$MASTER_ADDR" == 127.* ]]; then  # every node is this host
    export GLOO_SOCKET_IFNAME="${{GLOO_SOCKET_IFNAME:-lo}}"
    export NCCL_SOCKET_IFNAME="${{NCCL_SOCKET_IFNAME:-lo}}"
fi
"""
