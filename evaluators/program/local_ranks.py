"""The bash that runs a command as every rank on this machine, as srun does on a cluster's nodes."""

from __future__ import annotations

# Each rank is told its place in Slurm's words, which is how programs read it. As srun does, it ends
# all with the first that fails; what that one tells may only follow from the fault of another,
# which has a second to tell of its own. Asked to end, it asks all at once.
_RANKS = """ranks={ranks}
export SLURM_NTASKS="$ranks" SLURM_TASKS_PER_NODE="$ranks" SLURM_NODEID=0
pids=()
for ((rank = 0; rank < ranks; rank++)); do
    SLURM_PROCID="$rank" SLURM_LOCALID="$rank" "$@" &
    pids+=("$!")
done
trap 'kill $(jobs -rp) 2>/dev/null' TERM INT
code=0
exec {{never}}<> <(:)
while ((code == 0 && ${{#pids[@]}})); do
    read -rt 0.05 -u "$never"
    for at in "${{!pids[@]}}"; do
        kill -0 "${{pids[at]}}" 2>/dev/null && continue
        wait "${{pids[at]}}"
        ended=$?
        ((code)) || code=$ended
        unset "pids[at]"
    done
done
asked=10
for ((looks = 0; code != 0 && looks < 40; looks++)); do
    [[ -n "$(jobs -rp)" ]] || break
    if ((looks == asked)); then kill $(jobs -rp) 2>/dev/null; fi
    sleep 0.1
done
exit "$code"
"""


def ranks_script(ranks: int) -> str:
    """Return a script: `bash FILE COMMAND` runs the command as each of so many ranks."""
    return _RANKS.format(ranks=ranks)
