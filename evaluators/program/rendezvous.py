"""The bash that chooses an address and a port for the ranks of a run."""

from __future__ import annotations

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
