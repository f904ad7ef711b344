"""All figures together, as the document that is printed and that other programs read."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.progress import Progress

from tests.benchmarks.accuracy import memory, memory_2026, models_2026, throughput
from tests.benchmarks.accuracy.facts import Facts
from tests.benchmarks.accuracy.memory import LabelAccuracy
from tests.benchmarks.accuracy.rows import Tables
from tests.benchmarks.accuracy.speed import Speed
from tests.benchmarks.accuracy.throughput import SIZES, StackAccuracy, mean

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

AIMED_AT_AFTER_5 = 0.06
"""Error after 5 trials that is aimed at; no model gets below what repeats differ by."""


def judge(tables: Tables, *, draws: int, speed: Speed, progress: Progress) -> dict[str, Any]:
    """For JSON: fractions, and null for what no row tells."""
    facts = Facts.of([*tables.timed, *tables.remembered])
    stacks, times_left_out = throughput.stacks(tables.timed, facts)
    sized, memory_left_out = memory.stacks(tables.remembered, facts)
    times = {
        name: throughput.accuracy(stack, draws=draws)
        for name, stack in progress.track(list(stacks.items()), description="times")
    }
    peaks = {
        name: found
        for name, stack in progress.track(list(sized.items()), description="peaks")
        if (found := memory.peaks(stack, draws=draws)) is not None
    }
    labels = memory.labels(progress.track(list(sized.values()), description="labels"))
    whole: dict[str, Any] = {
        "overall": overall(list(times.values())),
        "consistent": overall([stack for stack in times.values() if consistent(stack)]),
        "clusters": {name: asdict(stack) for name, stack in times.items()},
        "memory": {
            **_labels(labels),
            "peak_mape_zero_shot": mean([peak.zero_shot for peak in peaks.values()]),
            "peak_mape_after_5": mean([peak.after_5 for peak in peaks.values()]),
            "clusters": {name: asdict(peak) for name, peak in peaks.items()},
        },
        "speed": asdict(speed),
        "left_out": {
            "throughput": Counter(times_left_out.values()),
            "memory": Counter(memory_left_out.values()),
        },
    }
    if tables.has_2026:
        timed = tables.timed_2026
        whole["models_2026"] = {
            **(asdict(models_2026.judge(timed, draws=draws)) if timed else {}),
            **asdict(memory_2026.judge(tables.golden, tables.reference, timed)),
        }
    return {name: _finite(part) for name, part in whole.items()}


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


def _labels(labels: LabelAccuracy | None) -> dict[str, Any]:
    names = ("rows", "failures", "auc", "auc_zero_shot", "threshold", "contradictions")
    shares = ("condemned", "missed", "condemned_at_half", "missed_at_half")
    if labels is None:
        return dict.fromkeys([*names, *shares])
    return {
        **{name: getattr(labels, name) for name in names},
        "condemned": labels.condemned(labels.threshold),
        "missed": labels.missed(labels.threshold),
        "condemned_at_half": labels.condemned(0.5),
        "missed_at_half": labels.missed(0.5),
    }


def _finite(value: Any) -> Any:
    """JSON has no NaN, and its keys are texts."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
