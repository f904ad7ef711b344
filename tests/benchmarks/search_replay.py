"""How many trials each search needs on published grids, where a trial reveals a row.

    python tests/benchmarks/search_replay.py --throughput FILE... [--grids FILE...] [--seeds N]
        [--searches NAME...] [--json OUT] [--picture OUT] [--processes N]

FILE is a CSV file with a row for each configuration that was measured or ran out of memory, with
the columns of `tests/benchmarks/accuracy/tables.py`; one that is missing is empty. A landscape is
what is known of one model on some GPUs of one stack, at one sequence length: at least 12 strategies
of which one ran. The objective is tokens/s on one GPU, and a search is there when a trial is within
1 % of the best that was measured. A table of --grids has a few layouts for each `grid_id`; of these
the first choice before any trial is judged.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from threadpoolctl import threadpool_limits

from tests.benchmarks.accuracy.command import at_least_1, bars, check_writable, console
from tests.benchmarks.accuracy.facts import Facts
from tests.benchmarks.accuracy.tables import THROUGHPUT, PublishedRow, TableError, read
from tests.benchmarks.replay.grids import GridChoices, choices, read_grids
from tests.benchmarks.replay.landscapes import landscapes, stacks, usable
from tests.benchmarks.replay.methods import METHODS, replays_of
from tests.benchmarks.replay.ours import cold
from tests.benchmarks.replay.picture import regret_svg
from tests.benchmarks.replay.projection import pairs
from tests.benchmarks.replay.report import document, show


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 2 for a table that cannot be used, said in one line."""
    chosen = _parser().parse_args(arguments)
    try:
        for out in (chosen.json, chosen.picture):
            check_writable(out)
        rows = [row for path in chosen.throughput for row in read(path, THROUGHPUT)]
        grids = choices(read_grids(chosen.grids)) if chosen.grids else None
    except TableError as error:
        print(f"search_replay: {error}", file=sys.stderr)
        return 2
    _compare(rows, grids, chosen)
    return 0


def _compare(
    rows: Sequence[PublishedRow], choices_2026: GridChoices | None, chosen: argparse.Namespace
) -> None:
    facts = Facts.of(rows)
    replayed, left_out = usable(rows, facts)
    every = stacks(replayed, facts)
    grids = [landscape for stack in every for landscape in landscapes(stack)]
    with threadpool_limits(limits=1), bars() as progress:
        found = [
            pair
            for stack in progress.track(every, description="projection")
            for pair in pairs(stack)
        ]
        replays = replays_of(
            grids,
            methods=chosen.searches,
            seeds=chosen.seeds,
            processes=chosen.processes,
            progress=progress,
        )
        own_stops = [cold(grid).own_stop() for grid in grids]
    whole = document(replays, found, own_stops, choices_2026)
    show(whole, Counter(left_out.values()), console(sys.stdout))
    if chosen.json:
        text = json.dumps(whole, indent=1, allow_nan=False)
        chosen.json.write_text(text + "\n", encoding="utf-8")
    if chosen.picture:
        chosen.picture.write_text(regret_svg(replays), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--throughput", type=Path, nargs="+", required=True, metavar="FILE")
    parser.add_argument(
        "--grids", type=Path, nargs="+", metavar="FILE", help="layouts of models of 2026, CSV"
    )
    parser.add_argument(
        "--seeds", type=at_least_1, default=10, help="replays of what depends on chance"
    )
    parser.add_argument("--searches", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all figures there")
    parser.add_argument("--picture", type=Path, metavar="OUT", help="draw trials against regret")
    parser.add_argument("--processes", type=at_least_1, default=os.cpu_count() or 1, help="at once")
    return parser


if __name__ == "__main__":
    sys.exit(main())
