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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.replay.trials import Replay, summary
from tests.benchmarks.worlds.searches import SEARCHES, run
from tests.benchmarks.worlds.world import QUESTIONS, World


def rows_of(runs: Mapping[str, Sequence[Replay]], *, most: int) -> list[dict[str, Any]]:
    """One row for each search. An unsolved run counts as `most` trials."""
    rows: list[dict[str, Any]] = []
    for name, mine in runs.items():
        counted = [replace(one, trials=min(one.trials, most)) for one in mine]
        mean = float(np.mean([one.trials for one in counted]))
        rows.append(
            {
                "search": name,
                **summary(counted),
                "mean": mean,
                "mean_over_ours": mean / (rows[0]["mean"] if rows else mean),
                "seconds_per_proposal": float(np.mean([o.seconds_per_proposal for o in mine])),
            }
        )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| search | trials, median | 90th pct. | mean | over ours | solved | failures | s each |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        "| {search} | {median:.1f} | {p90:.1f} | {mean:.1f} | {mean_over_ours:.1f} x "
        "| {solved:.0%} | {failures:.1f} | {seconds_per_proposal:.3f} |".format_map(row)
        for row in rows
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=4, help="machines for each question")
    parser.add_argument("--trials", type=int, default=200, help="at which a search gives up")
    parser.add_argument("--surprise", type=float, default=0.1, help="of time, unknown to the model")
    parser.add_argument("--searches", nargs="+", default=list(SEARCHES), choices=list(SEARCHES))
    parser.add_argument("--json", type=Path, help="write every run and the summary here")
    options = parser.parse_args(arguments)
    runs: dict[str, list[Replay]] = {name: [] for name in options.searches}
    for question, asked in QUESTIONS.items():
        worlds = [
            World.of(asked, seed=seed, surprise=options.surprise) for seed in range(options.worlds)
        ]
        fit = np.mean([np.mean(one.rates > 0) for one in worlds])
        print(f"{question}: {len(worlds[0].layouts)} layouts, {fit:.0%} fit", flush=True)
        for name, every in runs.items():
            mine = [run(name, one, most=options.trials) for one in worlds]
            print(f"    {name}: {[one.trials if one.solved else None for one in mine]}")
            every += mine
    rows = rows_of(runs, most=options.trials)
    print(f"\nSimulated; {len(QUESTIONS) * options.worlds} worlds.\n{table(rows)}")
    if options.json:
        document = {
            "simulated": True,
            "summary": rows,
            "runs": {name: list(map(asdict, every)) for name, every in runs.items()},
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
