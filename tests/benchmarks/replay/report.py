"""What all replays come to: the document that other programs read, and tables for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from tests.benchmarks.accuracy.command import table
from tests.benchmarks.replay.grids import GridChoices
from tests.benchmarks.replay.methods import METHODS, Replays
from tests.benchmarks.replay.projection import Pair, figures
from tests.benchmarks.replay.trials import OwnStop, Replay, summary

BARS = {
    "ours": "2; 5; 8; 0.3",
    "ours_warm": "1; 4; 7; 0.1",
    "ours_wrong": "90th pct. 7, worst 12",
    "ours_shuffled": "all solved, median of random",
}
"""What is aimed at."""

PROJECTION_BARS = {"2-4": "2 %; 75 to 85 %", "16+": "8 %; 75 to 85 %"}


def document(
    replays: Replays,
    pairs: Sequence[Pair],
    own_stops: Sequence[OwnStop],
    grids_2026: GridChoices | None = None,
) -> dict[str, Any]:
    """Trials to within 1 % of the best measured, by method: over all landscapes and of each; and
    what our searches come to that end by themselves."""
    whole = {
        "overall": {
            name: summary(every) for name in METHODS if (every := _of_method(replays, name))
        },
        "landscapes": {
            landscape: {method: summary(mine) for method, mine in by_method.items()}
            for landscape, by_method in replays.items()
        },
        "projection": figures(pairs),
        "own_stop": _own_stop(own_stops),
    }
    return whole if grids_2026 is None else whole | {"grids_2026": asdict(grids_2026)}


def _own_stop(ended: Sequence[OwnStop]) -> dict[str, float] | None:
    if not ended:
        return None
    trials = sum(one.trials for one in ended)
    return {
        "trials_median": float(np.median([one.trials for one in ended])),
        "failed_share": sum(one.failures for one in ended) / trials,
        "within_1_percent": float(np.mean([one.within for one in ended])),
    }


def _of_method(replays: Replays, method: str) -> list[Replay]:
    return [one for by_method in replays.values() for one in by_method.get(method, ())]


def show(whole: dict[str, Any], left_out: Counter[str], console: Console) -> None:
    """Print everything."""
    console.print(_overall(whole))
    console.print(_by_landscape(whole))
    console.print(_projection(whole))
    if own := whole["own_stop"]:
        console.print(
            f"Ended by itself, cold: {own['trials_median']:.1f} trials (median), "
            f"{own['failed_share']:.0%} of them out of memory, "
            f"{own['within_1_percent']:.0%} of searches within 1 % of the best.",
            highlight=False,
        )
    if grids := whole.get("grids_2026"):
        console.print(
            f"First choices on {grids['grids']} grids of models of 2026: "
            f"{_percent(grids['mean_regret_first'])} lost (aimed at 5 %), within 5 % of the best "
            f"in {grids['within_5_percent']} (aimed at 17 of 20).",
            highlight=False,
        )
    reasons = [f"{count} {reason}" for reason, count in left_out.items() if count]
    if reasons:
        console.print(f"Rows left out: {'; '.join(reasons)}.", highlight=False)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _overall(whole: dict[str, Any]) -> Table:
    heads = ("search", "median", "90th pct.", "worst", "failures", "solved", "s each", "aimed at")
    cells = (
        "{median:.1f} {p90:.1f} {worst:.0f} {failures:.2f} {solved:.0%} {seconds_per_proposal:.3f}"
    )
    return table(
        f"Trials to within 1 % of the best: {len(whole['landscapes'])} landscapes",
        heads,
        [
            (name, *cells.format_map(found).split(), BARS.get(name, ""))
            for name, found in whole["overall"].items()
        ],
        caption="Every replay of every landscape counts alike. Failures: the mean until then. "
        "s each: seconds for the choice of a trial. "
        "ours_warm and ours_imported only where the stack has other rows; ours_wrong: one "
        "figure of the data sheet times or divided by 5.",
    )


def _by_landscape(whole: dict[str, Any]) -> Table:
    names = list(whole["overall"])
    rows = []
    for landscape, by_method in whole["landscapes"].items():
        cells = [by_method.get(name) for name in names]
        rows.append((landscape, *("–" if c is None else f"{c['median']:.1f}" for c in cells)))
    heads = ("landscape", *(name.replace("_", "\n") for name in names))
    return table("Each landscape: medians", heads, rows)


def _projection(whole: dict[str, Any]) -> Table:
    heads = ("times the replicas", "pairs", "median error", "90th pct.", "80 % coverage")
    rows = [
        (band, f"{found['pairs']}", *(_percent(found[n]) for n in ("median", "p90", "coverage")))
        for band, found in whole["projection"].items()
    ]
    return table(
        "Wide runs predicted from narrow ones that differ only in replicas",
        (*heads, "aimed at"),
        [(*row, PROJECTION_BARS.get(row[0], "")) for row in rows],
    )
