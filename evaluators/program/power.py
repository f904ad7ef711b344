"""Power of a node's GPUs during training: sampling, and energy."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from evaluators.training_log import Iteration, Power

LEAST_SAMPLES = 3
"""Minimum samples per node for a mean."""

# Output of the tools, one line per GPU:
#   nvidia-smi: "65.12", or "[N/A]" if unsupported.
#   rocm-smi:   "GPU[0]\t\t: Average Graphics Package Power (W): 92.0"; from ROCm 6 on "Current
#               Socket Graphics Package Power (W)", in some releases both (the later one is used);
#               up to ROCm 3 "Power: 92.0 W". An MI250X reports the power of its two GCDs with the
#               first of them, and for the second "N/A (Secondary die)" or 0.0.
# `sample` checks every second whether its parent is still the process that started it, and ends if
# not. It runs at the lowest priority. Epochs are whole seconds before bash 5.
SAMPLER = r"""node="${SLURMD_NODENAME:-$(uname -n | cut -d. -f1)}"
say() { printf '[autotune power] %s %s\n' "$node" "$1"; }
ask() {
    case "$1" in
        nvidia-smi)
            timeout 10 nvidia-smi --query-gpu=power.draw --format=csv,noheader,nounits ;;
        rocm-smi) timeout 10 rocm-smi --showpower ;;
    esac
}
watts() {
    ask "$1" 2>/dev/null | awk -v tool="$1" '
        tool == "rocm-smi" && !/GPU\[[0-9]+\].*Power/ { next }
        { gpu = tool == "rocm-smi" ? $1 : NR }
        tool == "rocm-smi" { sub(/^.*Power[^:]*:/, "") }
        $1 ~ /^[0-9]+(\.[0-9]+)?$/ { drawn[gpu] = $1; some = 1 }
        END { for (gpu in drawn) sum += drawn[gpu]; if (some) printf "%.1f", sum }'
}
child_of() {
    local parent
    read -r _ _ _ parent _ </proc/self/stat && [[ "$parent" == "$1" ]]
}
sample() {
    local tool now drawn
    local LC_ALL=C
    renice -n 19 -p "$BASHPID" >/dev/null 2>&1
    if ! tool="$(command -v nvidia-smi || command -v rocm-smi)"; then
        say "none neither nvidia-smi nor rocm-smi is on its PATH"
        return
    fi
    tool="${tool##*/}"
    if [[ -z "$(watts "$tool")" ]]; then
        say "none $tool tells no power"
        return
    fi
    while child_of "$$"; do
        drawn="$(watts "$tool")"
        now="${EPOCHREALTIME:-$(printf '%(%s)T' -1)}"
        [[ -z "$drawn" ]] || say "$now $drawn"
        sleep 1
    done
}
"""


@dataclass(frozen=True, kw_only=True)
class Energy:
    """GPU energy per token; `note` says how it was sampled, or why it was not."""

    gpu_joules_per_token: float | None
    note: str


def energy(
    power: Power,
    measured: Sequence[Iteration],
    *,
    nodes: int,
    tokens: int,
    absent: Collection[str] = (),
) -> Energy:
    """Return the mean power of the nodes while `measured` ran, times its duration, per token.

    Args:
        power: sampled meanwhile.
        measured: iterations; time between and before them is excluded.
        nodes: number of nodes; each must have been sampled.
        tokens: of all iterations in `measured` together.
        absent: why nodes have no samples, as far as they reported it before.
    """
    lines = {iteration.line for iteration in measured}
    watts = {
        node: [sample.watts for sample in samples if sample.after + 1 in lines]
        for node, samples in power.samples.items()
    }
    if reason := _lacking(watts, {*absent, *power.absent.values()}, nodes):
        return Energy(gpu_joules_per_token=None, note=reason)
    joules = sum(map(mean, watts.values())) * sum(i.elapsed_s for i in measured)
    count = sum(map(len, watts.values()))
    note = f"GPU power sampled {count} times on {_nodes(nodes)} through the measured iterations"
    return Energy(gpu_joules_per_token=joules / tokens, note=note)


def _lacking(
    watts: Mapping[str, Sequence[float]], absent: Collection[str], nodes: int
) -> str | None:
    if not watts and absent:
        return f"no power was sampled: {', '.join(sorted(absent))}"
    if len(watts) < nodes:
        return f"power was sampled on {len(watts)} of {_nodes(nodes)} only"
    if (least := min(map(len, watts.values()))) < LEAST_SAMPLES:
        return (
            f"too few samples of power: {least} on a node through the measured iterations, and "
            f"{LEAST_SAMPLES} are needed; they come once a second"
        )
    return None


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
