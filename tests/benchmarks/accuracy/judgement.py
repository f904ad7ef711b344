"""All figures together, and as the document that other programs read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.progress import Progress

from tests.benchmarks.accuracy import memory, throughput
from tests.benchmarks.accuracy.facts import Facts
from tests.benchmarks.accuracy.memory import LabelAccuracy, PeakAccuracy
from tests.benchmarks.accuracy.memory_2026 import MemoryOf2026
from tests.benchmarks.accuracy.models_2026 import TimesOf2026
from tests.benchmarks.accuracy.tables import PublishedRow
from tests.benchmarks.accuracy.throughput import SIZES, StackAccuracy, mean
from tests.benchmarks.cost_model_speed import Speed

JUDGED = (
    "zero_shot_mape",
    "leave_one_model_out_mape",
    "coverage_80",
    "kendall_tau",
    "top1_regret_after_5",
    "same_batch_regret_after_5",
    "noise_floor",
)
"""Figures of a stack that have a mean over stacks, beside those for each number of trials."""

HALF = 0.5

AIMED_AT_AFTER_5 = 0.06
"""Error after 5 trials that is aimed at; no model gets below what repeats differ by."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What the tables say of the cost model; stacks by their names. `of_2026` and `memory_of_2026`
    are None without a table of models of 2025 and 2026."""

    stacks: Mapping[str, StackAccuracy]
    times_left_out: Counter[str]
    peaks: Mapping[str, PeakAccuracy]
    labels: LabelAccuracy | None
    memory_left_out: Counter[str]
    speed: Speed
    memory_of_2026: MemoryOf2026 | None = None
    of_2026: TimesOf2026 | None = None


def judge(
    timed: Sequence[PublishedRow],
    remembered: Sequence[PublishedRow],
    *,
    draws: int,
    speed: Speed,
    progress: Progress,
) -> Judgement:
    """Everything but the speed, which is measured before.

    Args:
        timed, remembered: rows of the two tables; either may be empty.
    """
    facts = Facts.of([*timed, *remembered])
    stacks, times_left_out = throughput.stacks(timed, facts)
    sized, memory_left_out = memory.stacks(remembered, facts)
    accuracies = {
        name: throughput.accuracy(stack, draws=draws)
        for name, stack in progress.track(list(stacks.items()), description="times")
    }
    peaks = {
        name: memory.peaks(stack, draws=draws)
        for name, stack in progress.track(list(sized.items()), description="peaks")
    }
    return Judgement(
        stacks=accuracies,
        times_left_out=Counter(times_left_out.values()),
        peaks={name: peak for name, peak in peaks.items() if peak is not None},
        labels=memory.labels(progress.track(list(sized.values()), description="labels")),
        memory_left_out=Counter(memory_left_out.values()),
        speed=speed,
    )


def overall(stacks: Sequence[StackAccuracy]) -> dict[str, Any]:
    """Unweighted means over the stacks that have a figure, so that no cluster with many rows
    decides; None where none has one."""
    means: dict[str, Any] = {
        name: mean([v for stack in stacks if (v := getattr(stack, name)) is not None])
        for name in JUDGED
    }
    means["mape_after"] = {
        str(size): mean([v for stack in stacks if (v := stack.mape_after[size]) is not None])
        for size in SIZES
    }
    return {"rows": sum(stack.rows for stack in stacks), **means}


def consistent(stack: StackAccuracy) -> bool:
    """Whether rows that agree in everything agree in time, too, to within what is aimed at."""
    return (stack.noise_floor or 0.0) <= AIMED_AT_AFTER_5


def document(judgement: Judgement) -> dict[str, Any]:
    """For JSON: fractions, and null for what no row tells."""
    stacks = judgement.stacks
    whole = {
        "overall": overall(list(stacks.values())),
        "consistent": overall([stack for stack in stacks.values() if consistent(stack)]),
        "clusters": {name: asdict(stack) for name, stack in stacks.items()},
        "memory": _memory(judgement.labels, judgement.peaks),
        "speed": asdict(judgement.speed),
        "left_out": {
            "throughput": judgement.times_left_out,
            "memory": judgement.memory_left_out,
        },
    }
    if judgement.of_2026 is not None:
        whole["models_2026"] = asdict(judgement.of_2026)
    if judgement.memory_of_2026 is not None:
        whole["models_2026"] = whole.get("models_2026", {}) | asdict(judgement.memory_of_2026)
    return {name: _finite(part) for name, part in whole.items()}


def _memory(labels: LabelAccuracy | None, peaks: Mapping[str, PeakAccuracy]) -> dict[str, Any]:
    zero_shot, after_5 = memory.overall(list(peaks.values()))
    return {
        **_labels(labels),
        "peak_mape_zero_shot": zero_shot,
        "peak_mape_after_5": after_5,
        "clusters": {name: asdict(peak) for name, peak in peaks.items()},
    }


def _labels(labels: LabelAccuracy | None) -> dict[str, Any]:
    names = ("rows", "failures", "auc", "auc_zero_shot", "threshold", "contradictions")
    shares = ("condemned", "missed", "condemned_at_half", "missed_at_half")
    if labels is None:
        return dict.fromkeys([*names, *shares])
    return {
        **{name: getattr(labels, name) for name in names},
        "condemned": labels.condemned(labels.threshold),
        "missed": labels.missed(labels.threshold),
        "condemned_at_half": labels.condemned(HALF),
        "missed_at_half": labels.missed(HALF),
    }


def _finite(value: Any) -> Any:
    """JSON has no NaN, and its keys are texts."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
