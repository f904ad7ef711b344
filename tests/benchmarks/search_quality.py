"""How many trials each search needs to come within 1 % of the best layout, on simulated machines.

    python tests/benchmarks/search_quality.py [--worlds N] [--trials N] [--surprise S] [--json OUT]

A *world* is a question (model, machine, nodes, space) with a machine that differs from what the
search believes of it: its constants are others, and it has costs that no formula of ours has (each
`--surprise`, 10 %, standard deviation, where it is greatest). A layout whose true memory exceeds
the limit fails, and a trial repeats within 1 %. What is learned of one model holds for the next on
the same machine: one search knows a campaign about another model. All figures are simulated: trust
the order of the searches, not the counts. `search_replay.py` has what was measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.worlds.searches import SEARCHES, SearchRun, run
from tests.benchmarks.worlds.world import QUESTIONS, World


def summary(runs: list[SearchRun], *, most: int) -> list[dict[str, Any]]:
    """One row for each search. An unsolved run counts as `most` trials."""
    rows: list[dict[str, Any]] = []
    for search in dict.fromkeys(one.search for one in runs):
        mine = [one for one in runs if one.search == search]
        counts = np.array([one.trials or most for one in mine], dtype=float)
        rows.append(
            {
                "search": search,
                "median": float(np.median(counts)),
                "p90": float(np.percentile(counts, 90)),
                "mean": float(counts.mean()),
                "solved": sum(one.trials is not None for one in mine) / len(mine),
                "failures": sum(one.failures for one in mine) / len(mine),
                "seconds_per_proposal": float(np.mean([o.seconds_per_proposal for o in mine])),
            }
        )
    for row in rows:
        row["mean_over_ours"] = row["mean"] / rows[0]["mean"]
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| search | trials, median | 90th pct. | mean | over ours | solved | failures | s each |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        lines.append(
            f"| {r['search']} | {r['median']:.1f} | {r['p90']:.1f} | {r['mean']:.1f} "
            f"| {r['mean_over_ours']:.1f} x | {r['solved']:.0%} | {r['failures']:.1f} "
            f"| {r['seconds_per_proposal']:.3f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=4, help="machines for each question")
    parser.add_argument("--trials", type=int, default=200, help="at which a search gives up")
    parser.add_argument("--surprise", type=float, default=0.1, help="of time, unknown to the model")
    parser.add_argument("--searches", nargs="+", default=list(SEARCHES), choices=list(SEARCHES))
    parser.add_argument("--json", type=Path, help="write every run and the summary here")
    options = parser.parse_args(arguments)
    runs: list[SearchRun] = []
    for name, question in QUESTIONS.items():
        worlds = [
            World.of(question, seed=seed, surprise=options.surprise)
            for seed in range(options.worlds)
        ]
        fit = np.mean([np.mean(one.rates > 0) for one in worlds])
        print(f"{name}: {len(worlds[0].layouts)} layouts, {fit:.0%} fit", flush=True)
        mine = [
            run(s, one, name=name, most=options.trials) for s in options.searches for one in worlds
        ]
        print("   ", {s: [r.trials for r in mine if r.search == s] for s in options.searches})
        runs += mine
    rows = summary(runs, most=options.trials)
    print(f"\nSimulated; {len(QUESTIONS) * options.worlds} worlds.\n{table(rows)}")
    if options.json:
        document = {"simulated": True, "summary": rows, "runs": [asdict(one) for one in runs]}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
