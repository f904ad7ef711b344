"""Power of a node's GPUs during training: sampling, and energy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from statistics import fmean, mean

from evaluators.training_log import Iteration, LoggedRun, Power, PowerSample, TrainingLog
from evaluators.trial import SampledNode, SampledPower

LEAST_SAMPLES = 3
"""Minimum samples per node for a mean."""

MOST_POINTS = 600
"""Maximum points kept per node; more samples are averaged over equal intervals."""
MOST_POINTS_OF_ALL = 36_000
"""Maximum points kept of all nodes together: with more than 60 nodes, each keeps fewer."""
FEWEST_POINTS = 10
"""Minimum points kept per node, regardless of the number of nodes."""

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
    """GPU energy per token; `note` says how it was sampled, or why it was not.

    `windows` are the intervals of Unix time that the samples are from, ascending.
    """

    gpu_joules_per_token: float | None
    note: str
    windows: tuple[tuple[float, float], ...] = ()


def energy(
    log: TrainingLog, run: LoggedRun, measured: Sequence[Iteration], *, nodes: int, tokens: int
) -> Energy:
    """Return the mean power of the nodes while `measured` ran, times its duration, per token.

    Args:
        log: of the whole attempt: a node without a tool may have reported it before `run` began.
        measured: iterations of `run`; time between and before them is excluded.
        nodes: number of nodes; each must have been sampled.
        tokens: of all iterations in `measured` together.
    """
    lines = {iteration.line for iteration in measured}
    watts = {
        node: [sample.watts for sample in samples if sample.after + 1 in lines]
        for node, samples in run.power.samples.items()
    }
    absent = {reason for each in log.runs for reason in each.power.absent.values()}
    if reason := _lacking(watts, absent, nodes):
        return Energy(gpu_joules_per_token=None, note=reason)
    joules = sum(map(mean, watts.values())) * sum(i.elapsed_s for i in measured)
    count = sum(map(len, watts.values()))
    note = f"GPU power sampled {count} times on {_nodes(nodes)} through the measured iterations"
    windows = _windows(run.power.samples.values(), lines)
    return Energy(gpu_joules_per_token=joules / tokens, note=note, windows=windows)


def sampled_power(
    starts: Iterable[Power], *, started_at: datetime, energy: Energy | None = None
) -> SampledPower | None:
    """Return the power of each node over the whole trial, at most MOST_POINTS per node; None if no
    node was sampled.

    Args:
        starts: logged by each start of the program.
        started_at: of the trial.
        energy: computed from it.
    """
    samples: dict[str, list[PowerSample]] = {}
    for power in starts:
        for node, taken in power.samples.items():
            samples.setdefault(node, []).extend(taken)
    if not samples:
        return None
    since = started_at.timestamp()
    most = min(MOST_POINTS, max(FEWEST_POINTS, MOST_POINTS_OF_ALL // len(samples)))
    windows = energy.windows if energy else ()
    return SampledPower(
        nodes=tuple(_averaged(node, samples[node], since, most) for node in sorted(samples)),
        energy_windows_s=tuple((_since(a, since), _since(b, since)) for a, b in windows),
    )


def _averaged(node: str, taken: Sequence[PowerSample], since: float, most: int) -> SampledNode:
    """Return the samples, or their means over `most` equal intervals."""
    stretches: dict[int, list[PowerSample]] = {}
    first = min(sample.at_s for sample in taken)
    width_s = (max(sample.at_s for sample in taken) - first) / most or 1.0
    for number, sample in enumerate(sorted(taken, key=lambda sample: sample.at_s)):
        stretch = min(most - 1, int((sample.at_s - first) / width_s))
        stretches.setdefault(stretch if len(taken) > most else number, []).append(sample)
    return SampledNode(
        node=node,
        samples=len(taken),
        at_s=tuple(_since(fmean(s.at_s for s in each), since) for each in stretches.values()),
        watts=tuple(round(fmean(s.watts for s in each), 1) for each in stretches.values()),
    )


def _since(at_s: float, start_s: float) -> float:
    return round(at_s - start_s, 2)


def _windows(
    nodes: Iterable[Sequence[PowerSample]], lines: Collection[int]
) -> tuple[tuple[float, float], ...]:
    """Return the intervals that contain the iterations of these lines, merged over nodes."""
    spans = []
    for samples in nodes:
        for counts, group in groupby(samples, key=lambda sample: sample.after + 1 in lines):
            times = [sample.at_s for sample in group]
            spans += [(min(times), max(times))] if counts else []
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def _lacking(
    watts: Mapping[str, Sequence[float]], absent: Collection[str], nodes: int
) -> str | None:
    """Return why there is no result; None if there are enough samples."""
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
