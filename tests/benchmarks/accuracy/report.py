"""The figures as tables for people, with what is aimed at beside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.benchmarks.accuracy.command import table
from tests.benchmarks.accuracy.stacks import LEAST_ROWS
from tests.benchmarks.accuracy.throughput import LEAST_STRATEGIES, SIZES

TAU_DIGITS = 2


def show(figures: dict[str, Any], console: Console) -> None:
    """Print everything."""
    newer = figures.get("models_2026", {})
    console.print(_stacks(figures))
    _left_out(console, "iteration times", figures["left_out"]["throughput"])
    console.print(_peaks(figures))
    _left_out(console, "memory", figures["left_out"]["memory"])
    if newer:
        console.print(_memory_of_2026(newer))
    console.print(_bars(figures))
    if "describable" in newer:
        console.print(_models_2026(newer))
        _left_out(console, "models of 2026", newer["left_out"])


def percent(value: float | None) -> str:
    """With one digit; a dash where nothing is known."""
    return "–" if value is None else f"{100 * value:.1f} %"


def number(value: float | None, *, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _of(count: int | None, rows: int | None) -> str:
    return "–" if count is None else f"{count} of {rows}"


def _stacks(figures: dict[str, Any]) -> Table:
    judged = ("left-out\nmodel", "80 %\ncoverage", "Kendall's\ntau", "top-1\nregret")
    after = [f"after\n{size}" for size in SIZES]
    made = table(
        f"Iteration time: stacks of at least {LEAST_ROWS} independent rows",
        ("cluster / framework", "rows", "zero-\nshot", *after, *judged, "noise\nfloor"),
        [(name, *_cells(stack)) for name, stack in figures["clusters"].items()],
        caption="Mean absolute error. Tau (mean) and regret (median) after 5 trials, over "
        f"landscapes of at least {LEAST_STRATEGIES} strategies. Noise floor: rows that "
        "agree in every column against their median; repeats agree where it is 6 % or less.",
    )
    made.add_section()
    made.add_row("overall, stacks alike", *_cells(figures["overall"]), style="bold")
    made.add_row("those whose repeats agree", *_cells(figures["consistent"]))
    return made


def _cells(stack: dict[str, Any]) -> list[str]:
    return [
        f"{stack['rows']}",
        percent(stack["zero_shot_mape"]),
        *(percent(stack["mape_after"][str(size)]) for size in SIZES),
        percent(stack["leave_one_model_out_mape"]),
        percent(stack["coverage_80"]),
        number(stack["kendall_tau"], digits=TAU_DIGITS),
        percent(stack["top1_regret_after_5"]),
        percent(stack["noise_floor"]),
    ]


def _peaks(figures: dict[str, Any]) -> Table:
    return table(
        "Measured peaks of memory",
        ("cluster / framework", "rows", "zero-shot", "after 5", "noise floor"),
        [
            (name, f"{peak['rows']}", *(percent(peak[each]) for each in PEAK_ERRORS))
            for name, peak in figures["memory"]["clusters"].items()
        ],
    )


PEAK_ERRORS = ("zero_shot", "after_5", "noise_floor")


def _bars(figures: dict[str, Any]) -> Table:
    """What is aimed at beside what is reached."""
    overall, memory, speed = figures["overall"], figures["memory"], figures["speed"]
    after_5 = [stack["mape_after"]["5"] for stack in figures["clusters"].values()]
    known = [error for error in after_5 if error is not None]
    threshold = number(memory["threshold"], digits=3)
    rate = number(speed["strategies_per_second"], digits=0)
    rows = (
        ("error zero-shot", percent(overall["zero_shot_mape"]), "15 %"),
        ("error after 5 trials", percent(overall["mape_after"]["5"]), "6 %"),
        ("the same, worst stack", percent(max(known, default=None)), "10 %"),
        ("error after 20 trials", percent(overall["mape_after"]["20"]), "4.5 %"),
        ("error for a left-out model", percent(overall["leave_one_model_out_mape"]), "7 %"),
        ("coverage of 80 % intervals", percent(overall["coverage_80"]), "80 %"),
        ("top-1 regret after 5 trials", percent(overall["top1_regret_after_5"]), "1 %"),
        ("the same, batch fixed", percent(overall["same_batch_regret_after_5"]), ""),
        ("memory: AUC, cross-validated", number(memory["auc"], digits=4), "0.985"),
        ("memory: AUC zero-shot", number(memory["auc_zero_shot"], digits=4), ""),
        (f"condemned at {threshold}", percent(memory["condemned"]), "2 %"),
        (f"missed at {threshold}", percent(memory["missed"]), "2 %"),
        ("labels that must be wrong", _of(memory["contradictions"], memory["rows"]), ""),
        ("condemned at 0.5", percent(memory["condemned_at_half"]), ""),
        ("missed at 0.5", percent(memory["missed_at_half"]), ""),
        ("peaks zero-shot", percent(memory["peak_mape_zero_shot"]), ""),
        ("peaks after 5 trials", percent(memory["peak_mape_after_5"]), "5 %"),
        (f"strategies/s, {speed['strategies']:,} at once", rate, "2,000,000"),
        ("one strategy, microseconds", number(speed["microseconds_for_one"], digits=0), ""),
        ("calibration on 20, seconds", number(speed["calibration_seconds"], digits=2), "0.3"),
    )
    return table("Overall", ("figure", "reached", "aimed at"), rows)


def _memory_of_2026(figures: dict[str, Any]) -> Table:
    """What is aimed at beside what is reached for the memory of models of 2025 and 2026."""
    left_out = Counter(figures["peaks_left_out"]) + Counter(figures["ran_left_out"])
    return table(
        "Memory of models of 2025 and 2026",
        ("figure", "rows", "reached", "aimed at"),
        [
            (name, f"{figures[rows]}", percent(figures[reached]), aimed_at)
            for name, rows, reached, aimed_at in (
                ("golden peaks zero-shot", "peaks", "peak_mape_zero_shot", "13 %"),
                ("the same, calibrated on the reference", "peaks", "peak_mape_calibrated", "8 %"),
                ("ran, but predicted not to fit", "ran", "false_oom", "3 %"),
            )
        ],
        caption="Left out: " + "; ".join(f"{n} {reason}" for reason, n in left_out.items()),
    )


def _models_2026(figures: dict[str, Any]) -> Table:
    """Models of 2025 and 2026: what is aimed at beside what is reached."""
    rows = (
        ("rows that a strategy describes", _of(figures["describable"], figures["rows"]), "71 %"),
        ("error zero-shot, of these", percent(figures["zero_shot_mape_describable"]), "12 %"),
        ("error zero-shot, of all", percent(figures["zero_shot_mape_all"]), "18 %"),
        ("error after 5 trials", percent(figures["mape_after_5"]), "12 %"),
        ("error for a left-out model", percent(figures["leave_one_model_out_mape"]), "12 %"),
        ("error within a program", percent(figures["in_stack_mape"]), "5 %"),
        ("error with context parallelism", percent(figures["context_parallel_mape"]), "6 %"),
        ("coverage of 80 % intervals", percent(figures["coverage_80"]), "80 %"),
    )
    title = "Models of 2025 and 2026: means over rows"
    return table(title, ("figure", "reached", "aimed at"), rows)


def _left_out(console: Console, what: str, reasons: Mapping[str, int]) -> None:
    text = [f"{count} {reason}" for reason, count in reasons.items() if count]
    if text:
        console.print(f"Rows left out of {what}: {'; '.join(text)}.\n", highlight=False)
